"""Asks DuckDB the questions of docs/trace.sql, and prints the answers as JSON.

    ask.py QUESTIONS.sql TRACE     the answers, by the questions' names
    ask.py --layout ROOT           what hive partitioning makes of ROOT/host=*/run=*
"""

import json
import sys

import duckdb


def rows(cursor):
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row)) for row in cursor.fetchall()]


def ask(questions, trace):
    connection = duckdb.connect()
    answers = {}
    with open(questions, encoding="utf-8") as file:
        parts = file.read().split("-- name: ")[1:]
    for part in parts:
        name, text = part.split("\n", 1)
        cursor = connection.execute(text.replace("'t1/", f"'{trace}/"))
        if name != "setup":
            answers[name] = rows(cursor)
    return answers


def layout(root):
    return rows(
        duckdb.connect().execute(
            f"""SELECT host, run, count(*) AS datagrams, max(app_dequeue_ns - offer_ns) AS max_ns
                FROM read_parquet('{root}/host=*/run=*/packets-*.parquet', hive_partitioning = true)
                WHERE outcome = 1 GROUP BY ALL ORDER BY ALL"""
        )
    )


def main():
    answer = layout(sys.argv[2]) if sys.argv[1] == "--layout" else ask(sys.argv[1], sys.argv[2])
    json.dump(answer, sys.stdout, default=float)


main()
