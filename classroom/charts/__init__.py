"""Charts: their style, schematics, figures of costs, curves that grow while a cell runs."""
