"""The classes that the types of type_zoo.py are made of."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import ipaddress
import pathlib
import uuid
from decimal import Decimal
from typing import (
    Annotated,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypeVar,
    Union,
)

import pydantic.dataclasses
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    computed_field,
    field_validator,
)
from typing_extensions import TypeAliasType, TypedDict


class Colour(enum.Enum):
    RED = "red"
    TWO = 2
    NOTHING = None


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Odd(enum.StrEnum):
    QUOTED = 'a"b\\c'
    LINES = "ü\n"


class Half(float, enum.Enum):
    HALF = 0.5
    WHOLE = 1.0


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class Dog(BaseModel):
    kind: Literal["dog", "wolf"]
    owner: str | None = None


class LongCat(Cat):
    metres: float


class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Aliased(BaseModel):
    tag: Literal["x"] = Field(alias="kindOf")


class OtherAliased(BaseModel):
    tag: Literal["y"] = Field(alias="kindOf")
    next: Optional[Annotated[Union[Aliased, OtherAliased], Field(discriminator="tag")]] = None  # noqa: UP007, UP045 - as is


class InnerA(BaseModel):
    kind: Literal["in"]
    sort: Literal["a"]


class InnerB(BaseModel):
    kind: Literal["in"]
    sort: Literal["b"]
    size: int


Inner = Annotated[InnerA | InnerB, Field(discriminator="sort")]


class TaggedOdd(BaseModel):
    tag: Literal[Odd.QUOTED]


class TaggedLines(BaseModel):
    tag: Literal[Odd.LINES]
    size: int


class One(BaseModel):
    tag: Literal[1]
    a: int


class NoTag(BaseModel):
    tag: Literal[None]
    b: int


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Tree(BaseModel):
    left: Tree | None = None
    named: dict[str, Tree] = {}


class Ping(BaseModel):
    pong: Pong | None = None


class Pong(BaseModel):
    pings: list[Ping]


class Empty(BaseModel):
    pass


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class LooseCounts(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int]
    a: str


class LooseAliased(BaseModel):
    model_config = ConfigDict(extra="allow", populate_by_name=True)
    a: int = Field(1, alias="first")
    b: int = Field(1, validation_alias=AliasChoices("second", "third", AliasPath("fourth", 0)))


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int


class Stripped(BaseModel):
    model_config = ConfigDict(str_strip_whitespace=True, str_min_length=1)
    a: str


class Quoted(BaseModel):
    a: int = Field(alias='say "ü"\\')
    b: int = Field(1, validation_alias="x y", serialization_alias="z")


class ByName(BaseModel):
    model_config = ConfigDict(validate_by_alias=False, validate_by_name=True)
    a: int = Field(alias="A")


class EitherName(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    a: int = Field(alias="A")


class Chosen(BaseModel):
    a: int = Field(validation_alias=AliasChoices(AliasPath("x", 0), "y", "z"))


class Shouted(BaseModel):
    model_config = ConfigDict(alias_generator=str.upper)
    foo: int
    bar: int = 1


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    count: int
    ratio: float
    day: datetime.date
    key: uuid.UUID
    level: Level
    seen: set[int]
    pair: tuple[int, str]
    data: bytes
    price: Decimal
    path: pathlib.Path
    host: ipaddress.IPv4Address
    ranks: dict[int, Level]


class Area(BaseModel):
    side: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.side**2


class Hidden(BaseModel):
    name: str = Field(exclude=True)
    count: int = Field(default_factory=int)
    _private: int = 3
    constant: ClassVar[int] = 4


class Doubled(BaseModel):
    a: int

    @field_validator("a")
    @classmethod
    def _double(cls, value: int) -> int:
        return 2 * value


class Described(BaseModel):
    model_config = ConfigDict(json_schema_extra={"hint": "a thing"}, title="Thing")
    a: int = Field(description="how many", json_schema_extra={"widget": "slider"}, examples=[3])


class Bounded(BaseModel):
    age: int = Field(ge=0, lt=150)
    name: str = Field(min_length=1, max_length=5)
    tags: list[Literal["a", "b"]] = Field(default=[], max_length=2)


class Coded(BaseModel):
    model_config = ConfigDict(val_json_bytes="base64", ser_json_bytes="base64")
    data: bytes


class Hexed(BaseModel):
    model_config = ConfigDict(val_json_bytes="hex")
    data: bytes


class ByPython(BaseModel):
    model_config = ConfigDict(regex_engine="python-re")
    code: str = Field(pattern=r"^(?!ab)[a-c]+$")


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    a: int


class Numbers(RootModel[list[int]]):
    pass


class Scores(RootModel[dict[str, int | None]]):
    pass


Item = TypeVar("Item")


class Box(BaseModel, Generic[Item]):
    item: Item
    more: list[Item] = []


class Pair(NamedTuple):
    x: int
    name: str = "p"


Untyped = collections.namedtuple("Untyped", "x y")


@dataclasses.dataclass
class Place:
    city: str
    zip: int | None = None


@dataclasses.dataclass(kw_only=True)
class KeywordOnly:
    a: int
    b: list[int] = dataclasses.field(default_factory=list)
    made: int = dataclasses.field(init=False, default=3)


@dataclasses.dataclass
class Seeded:
    seed: dataclasses.InitVar[int]
    value: int = 0

    def __post_init__(self, seed: int) -> None:
        self.value += seed


@dataclasses.dataclass(frozen=True)
class Spot:
    x: int


@dataclasses.dataclass
class Holder(Generic[Item]):
    item: Item


@pydantic.dataclasses.dataclass
class Linked:
    value: int = Field(ge=3)
    next: Linked | None = None


class Movie(TypedDict, total=False):
    title: Required[str]
    year: int
    seen: NotRequired[bool]


class Fixed(TypedDict):
    key: int
    note: NotRequired[str]


class Sealed(TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]
    a: int


class Wrapped(TypedDict, Generic[Item]):
    item: Item


UserId = NewType("UserId", int)
Nested = TypeAliasType("Nested", "int | list[Nested]")
Letters = Literal["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
