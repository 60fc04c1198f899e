"""Classify with Choice: the answer is one of the given items, and nothing else can be written.

A generator compiles the choice once and is called once per mail.
"""

import structgen as sg

TOPICS = sg.Choice(["delivery", "invoice", "praise", "complaint"])

MAILS = [
    "Where is my parcel? It should have come on Monday.",
    "You charged me twice for order 1182.",
    "Best chair I ever had, thank you!",
]


def main() -> None:
    """Print a topic beside each mail."""
    model = sg.load()
    classify = model.generator(TOPICS)
    for mail in MAILS:
        question = f"Is this mail about delivery, invoice, praise or complaint? Answer with one word.\n\n{mail}"
        topic = classify(question, sampling=sg.Sampling.greedy())
        print(f"{topic:10} {mail}")


if __name__ == "__main__":
    main()
