"""Compare classifiers that learn from a few labels in your own table of texts.

    python examples/your_labels.py reviews.csv --column review --label stars
    python examples/your_labels.py reviews.jsonl --backbone real     # needs the extra real

A row whose label is empty (or None) is text without a label.  A fifth of the labelled texts is kept
for the test; the script learns from `--labels` of the others, by the methods of
`classroom/tasks/own_labels.py`.
"""

from classroom.cli.parser import Parser, fail, positive
from classroom.tasks import own_labels

parser = Parser("your_labels.py", __doc__.splitlines()[0])
parser.add_argument("file", help="a table: .csv, .tsv or .jsonl")
parser.add_argument("--column", default="text", help="the column of texts [text]")
parser.add_argument("--label", default="label", help="the column of labels [label]")
parser.add_argument("--backbone", choices=own_labels.WAYS, help="only this method [all three]")
parser.add_argument(
    "--labels", type=positive, default=100, help="the number of labels to learn from [100]"
)
given = parser.parse_args()
ways = [given.backbone] if given.backbone else own_labels.WAYS

try:
    task = own_labels.task_of(given.file, given.column, given.label, given.labels)
    found = own_labels.compare(task, ways)
except (ValueError, OSError) as error:
    fail(f"your_labels.py: {error}")
print(own_labels.report(task, found))
