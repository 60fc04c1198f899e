"""Extract a person: a Pydantic model goes in, an object of it comes out.

Every bound of the model is part of the grammar, so no answer can have a negative age or a name of a thousand letters.
"""

from pydantic import BaseModel, Field

import structgen as sg


class Person(BaseModel):
    """Somebody that a text speaks of."""

    name: str = Field(max_length=40)
    age: int = Field(ge=0, le=120)
    email: str | None = Field(max_length=40, pattern=r"^[a-z.]+@[a-z]+\.[a-z]{2,3}$")


PROMPT = """Extract the person as JSON with the keys name, age and email.

Text: Anna Lindqvist (31) has moved to Oslo. Write to her at anna@example.org."""


def main() -> None:
    """Load the model, fill one object, and say what it cost."""
    model = sg.load()
    result = model.run(Person, PROMPT, sampling=sg.Sampling.greedy(), max_tokens=100)
    person: Person = result.value
    print(repr(person))
    print(f"{result.report.num_tokens} tokens, {result.report.tpot_s * 1000:.0f} ms each")


if __name__ == "__main__":
    main()
