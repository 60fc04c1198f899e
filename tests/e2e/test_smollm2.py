"""SmolLM2 end to end: five types x four prompts, each result valid by an independent check."""

from __future__ import annotations

import datetime
import json
import re
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import BaseModel, Field, TypeAdapter

import structgen as sg

pytestmark = pytest.mark.model


class Person(BaseModel):
    name: str = Field(max_length=30)
    age: int = Field(ge=0, le=120)
    email: str | None = Field(max_length=30, pattern=r"^[a-z.]+@[a-z]+\.(com|org)$")


class Node(BaseModel):
    label: str = Field(pattern=r"^[a-z]{1,8}$")
    children: list[Node] = Field(max_length=3)


class Circle(BaseModel):
    kind: Literal["circle"]
    radius: float = Field(gt=0, lt=100)


class Box(BaseModel):
    kind: Literal["box"]
    sides: tuple[int, int]


Shape = Annotated[Circle | Box, Field(discriminator="kind")]

INVOICE = {
    "type": "object",
    "properties": {
        "number": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"},
        "date": {"type": "string", "format": "date"},
        "lines": {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {
                "type": "object",
                "properties": {"item": {"type": "string", "maxLength": 16}, "count": {"type": "integer", "minimum": 1}},
                "required": ["item", "count"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["number", "date", "lines"],
    "additionalProperties": False,
}

PROMPTS: list[Any] = [
    "Anna Lindqvist is 31 years old; write to anna@example.org.",
    "Invoice AB-1234 of 2026-03-01: two lamps, one chair.",
    [
        {"role": "system", "content": "You answer in JSON."},
        {"role": "user", "content": "Describe a circle of radius 2.5."},
    ],
    sg.Raw('{{{[[[ "\\ 日本語 🎈'),
]


def check_invoice(text: str, value: Any) -> None:
    """Hold the text against jsonschema, the date against Python."""
    assert value == json.loads(text)
    jsonschema.validate(value, INVOICE)
    datetime.date.fromisoformat(value["date"])


def check_type(output_type: Any) -> Any:
    """Return a check that pydantic reads the text as the value."""

    def check(text: str, value: Any) -> None:
        assert value == TypeAdapter(output_type).validate_json(text)

    return check


def check_plate(text: str, value: Any) -> None:
    """Hold the text against re."""
    assert value == text
    assert re.fullmatch(r"[A-Z]{1,3}-[A-Z]{2} \d{1,4}", text)


TYPES: dict[str, tuple[Any, Any]] = {
    "person": (Person, check_type(Person)),
    "tree": (Node, check_type(Node)),
    "shape": (Shape, check_type(Shape)),
    "invoice": (sg.JsonSchema(INVOICE), check_invoice),
    "plate": (sg.Regex(r"[A-Z]{1,3}-[A-Z]{2} \d{1,4}"), check_plate),
}


@pytest.mark.parametrize("prompt", range(len(PROMPTS)))
@pytest.mark.parametrize("name", sorted(TYPES))
def test_every_result_is_valid(smollm2: sg.Model, name: str, prompt: int) -> None:
    """Sampled at temperature 1, the text fits its type, and the value is what the text says."""
    output_type, check = TYPES[name]
    result = smollm2.run(output_type, PROMPTS[prompt], seed=prompt, max_tokens=64)
    check(result.text, result.value)
    assert len(result.token_ids) <= 64


def test_facts_are_copied(smollm2: sg.Model) -> None:
    """Greedy decoding fills in what the prompt says: the type guides the model and does not hide the text from it."""
    prompt = f"Extract the person as JSON with the keys name, age and email.\n\nText: {PROMPTS[0]}"
    person = smollm2.generate(Person, prompt, sampling=sg.Sampling.greedy(), max_tokens=56)
    assert (person.name, person.age) == ("Anna Lindqvist", 31)


def test_same_seed_same_text(smollm2: sg.Model) -> None:
    """A seed repeats a sampled text on the real model."""
    first, second = (smollm2.run(Person, "Somebody.", seed=3, max_tokens=40) for _ in range(2))
    assert first.token_ids == second.token_ids
