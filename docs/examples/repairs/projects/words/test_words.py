import unittest

from words import initials, is_palindrome


class TestWords(unittest.TestCase):
    def test_initials(self) -> None:
        self.assertEqual(initials("ada lovelace"), "AL")

    def test_is_palindrome(self) -> None:
        self.assertTrue(is_palindrome("Never odd or even"))
        self.assertFalse(is_palindrome("trio"))
