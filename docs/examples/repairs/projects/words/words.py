"""Small things about words."""


def initials(name: str) -> str:
    """The first letters of all words, in capitals."""
    return "".join(word[0] for word in name.split())


def is_palindrome(text: str) -> bool:
    """Return whether a text reads the same backwards, ignoring case and spaces."""
    letters = [letter for letter in text if letter.isalpha()]
    return letters == letters[::-1]
