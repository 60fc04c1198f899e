"""Write a query of a small SELECT grammar, given in Lark's notation.

The grammar names the tables and columns that exist, so a query can be run as it comes; here sqlite3 runs it.
"""

import sqlite3

import structgen as sg

GRAMMAR = r"""
start: "SELECT " columns " FROM users" [where] [order]
columns: "*" | column (", " column)*
where: " WHERE " condition (" AND " condition)*
condition: "age" compare NUMBER | "city = '" CITY "'"
order: " ORDER BY " column [" DESC"]
!column: "name" | "age" | "city"
!compare: " < " | " > " | " = "
CITY: "Oslo" | "Bergen"
NUMBER: /[1-9][0-9]?/
"""

ROWS = [("Anna", 31, "Oslo"), ("Bo", 44, "Bergen"), ("Cem", 19, "Oslo"), ("Dora", 67, "Oslo")]
QUESTION = """Table users has the columns name, age and city.
Write one SQL query: the name and age of all users from Oslo."""


def main() -> None:
    """Ask for a query, print it, run it, print its rows."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE users (name TEXT, age INTEGER, city TEXT)")
    database.executemany("INSERT INTO users VALUES (?, ?, ?)", ROWS)
    model = sg.load()
    query = model.generate(sg.Lark(GRAMMAR), QUESTION, sampling=sg.Sampling.greedy(), max_tokens=60)
    print(query)
    for row in database.execute(query):
        print(row)
    database.close()


if __name__ == "__main__":
    main()
