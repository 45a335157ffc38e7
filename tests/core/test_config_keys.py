"""Bearer keys: shown once, kept as a hash."""

from __future__ import annotations

from haulage.config import hash_key, new_key, new_secret


def test_a_new_key_matches_its_hash_and_no_other():
    text, hash_ = new_key()

    assert hash_ == hash_key(text)
    assert hash_ != hash_key(text + "x")
    assert hash_ != hash_key(new_key()[0])


def test_a_key_is_recognised_and_has_256_random_bits():
    text, hash_ = new_key()

    assert text.startswith("hk_")
    assert 43 == len(text.removeprefix("hk_"))
    assert hash_ == hash_key(text)
    assert len("sha256:") + 64 == len(hash_)


def test_a_text_that_is_no_utf8_is_compared_all_the_same():
    assert new_key()[1] != hash_key("hk_\udcff")


def test_secrets_are_strong_and_differ():
    assert 100 == len({new_secret() for _ in range(100)})
    assert 32 <= len(new_secret())
