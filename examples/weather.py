"""Call a function: the model picks a tool and its arguments, Python runs it.

The arguments fit the signatures by construction; a destructive tool runs only where somebody agrees to the call.
"""

from typing import Annotated, Literal

from annotated_types import Ge, Le

import structgen as sg

CITIES = Literal["Oslo", "Bergen", "Tromso"]


@sg.tool
def get_weather(city: CITIES, unit: Literal["C", "F"] = "C") -> str:
    """Return the weather of a city."""
    degrees = {"Oslo": 7, "Bergen": 9, "Tromso": -3}[city]
    return f"{degrees if unit == 'C' else degrees * 9 // 5 + 32} {unit}"


@sg.tool(destructive=True)
def delete_reports(city: CITIES, older_than_days: Annotated[int, Ge(1), Le(365)]) -> str:
    """Delete old weather reports of a city."""
    return f"reports of {city} deleted that were older than {older_than_days} days"


TOOLS = sg.ToolSet([get_weather, delete_reports], min_calls=1)


def agree(call: sg.ToolCall) -> bool:
    """Agree to whatever leaves the last month alone; a real application asks its user."""
    return int(call.arguments["older_than_days"]) > 30


def main() -> None:
    """Ask twice, and run what comes."""
    model = sg.load()
    for question in ("What is the weather in Bergen?", "Delete all weather reports of Oslo older than 90 days."):
        (call,) = model.generate(TOOLS, question, sampling=sg.Sampling.greedy(), max_tokens=80)
        print(call.name, dict(call.arguments))
        try:
            print("->", call.invoke(confirm=agree))
        except sg.ConfirmationRequired:
            print("-> not confirmed")


if __name__ == "__main__":
    main()
