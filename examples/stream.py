"""Show a form that fills itself: each field is printed as soon as it is certain.

The last partial is complete, and its value is the object; before that it is plain data.
"""

from pydantic import BaseModel, Field

import structgen as sg


class Person(BaseModel):
    """Somebody that a text speaks of."""

    name: str = Field(max_length=40)
    age: int = Field(ge=0, le=120)
    city: str = Field(max_length=40)


PROMPT = "Extract the person as JSON with the keys name, age and city.\n\nText: Olga Berg (58) lives in Bergen."


def main() -> None:
    """Fill one form, field by field."""
    model = sg.load()
    shown: object = None
    for partial in model.stream(Person, PROMPT, sampling=sg.Sampling.greedy(), max_tokens=60):
        if partial.value != shown:
            shown = partial.value
            print(repr(shown))


if __name__ == "__main__":
    main()
