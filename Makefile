# Everything but `clean` is `python -m labkit …` as well, for machines without make.
PYTHON ?= python3

.PHONY: lab test lecture site course bench notebooks pins clean

lab:        ## set up what is missing and open the course in JupyterLab
	@$(PYTHON) -m labkit lab

test:       ## set up what is missing and run everything that CI runs
	@$(PYTHON) -m labkit test

lecture:    ## slides with live widgets: make lecture NB=08_bert
	@$(PYTHON) -m labkit lecture $(if $(NB),"$(NB)")

site:       ## write all notebooks as pages that need no server and no network
	@$(PYTHON) -m labkit site

course:     ## run every notebook and write the measured table into the README
	@$(PYTHON) -m labkit course --table

bench:      ## run the benchmarks
	@$(PYTHON) -m labkit bench

notebooks:  ## execute the notebooks and store their outputs, normalised
	@$(PYTHON) -m labkit notebooks

pins:       ## write constraints.txt anew
	@$(PYTHON) -m labkit pins

clean:      ## remove what was set up, built and run, with all answers and results in runs/
	rm -rf .venv .venv-* .venv*.lock build dist runs site artifacts *.egg-info .*_cache .hypothesis
