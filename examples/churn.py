"""Which files of a git repository change most, month by month? Mines the whole history, with every version's text.

python churn.py ~/code/project      prints a table, and writes the chart churn.html

The history is imported into a stream that is called like the folder of the project, code/project; only what is new is
imported next time.
"""

import html
import re
import sys
from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

import penstock
from penstock.errors import PenstockError
from penstock.repo import Repository
from penstock.repo.git import check_git, import_git
from penstock.spark import register

if len(sys.argv) != 2:
    sys.exit("usage: python churn.py FOLDER, with the folder of a git repository")
PROJECT = Path(sys.argv[1]).resolve()
STORE = "penstock-data"
STREAM = "code/" + (re.sub(r"[^A-Za-z0-9._-]", "-", PROJECT.name).lstrip("._-") or "project")


@F.udf(LongType())
def changed_lines(before, after):
    old, new = (Counter((text or b"").split(b"\n")) for text in (before, after))
    return ((old - new) + (new - old)).total()


try:
    check_git(PROJECT)  # before a store is created for it
    with penstock.connect(STORE) as store:
        print(import_git(PROJECT, Repository.open(store, STREAM, create=True)).revisions, "new revisions")
except PenstockError as error:  # such as that of another project whose folder has the same name
    sys.exit(f"churn.py: {error}")

with penstock.connect(STORE):
    spark = SparkSession.builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    register(spark)
    history = spark.read.format("penstock-repo").option("store", STORE).option("stream", STREAM)
    revisions = history.option("table", "revisions").load()
    texts = history.option("table", "texts").load().where("size < 1000000")

    before = texts.select("file_id", F.col("revision").alias("parent"), F.col("text").alias("before"))
    churn = (
        texts.withColumn("parent", F.try_element_at("parents", F.lit(1)))
        .join(before, ["file_id", "parent"], "left")
        .join(revisions, "revision")
        .groupBy("file_id", F.date_format("commit_time", "yyyy-MM").alias("month"))
        .agg(F.sum(changed_lines("before", "text")).alias("lines"), F.max_by("path", "commit_time").alias("path"))
    ).collect()

files = Counter()
for row in churn:
    files[row.file_id] += row.lines
names = {row.file_id: row.path for row in sorted(churn, key=lambda row: row.month)}
months = sorted({row.month for row in churn})
lines = {(row.file_id, row.month): row.lines for row in churn}
most = max(lines.values(), default=1)
for file, count in files.most_common(10):
    print(f"{count:>9,} lines  {names[file]}")

cells = "".join(
    f'<tr><td>{html.escape(names[file])}<td align="right">{count:,}'
    + "".join(
        f'<td title="{month}: {lines.get((file, month), 0):,} lines" '
        f'style="background: rgb(47 129 247 / {lines.get((file, month), 0) / most:.3f})">'
        for month in months
    )
    for file, count in files.most_common(40)
)
heads = "".join(f"<th>{month}" for month in months)
with open("churn.html", "w", encoding="utf-8") as page:
    page.write(
        f"<!doctype html><meta charset=utf-8><title>Churn</title><style>body {{font: 14px system-ui}}</style>"
        f"<h1>Changed lines per file and month</h1><table><tr><th>file<th>lines{heads}{cells}</table>"
    )
print(f"chart of {len(files)} files over {len(months)} months: churn.html")
