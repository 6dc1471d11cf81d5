"""A stage in a thread of its own: order, failures, how far it goes ahead, and how it ends."""

import threading

import pytest

from gadget.streaming_ahead import Ahead

SOON = 5.0


def ahead(source, limit=3, cost=lambda _item: 1):
    return Ahead(source, cost=cost, limit=limit, name="under test")


def test_items_come_in_order():
    assert list(ahead(range(100))) == list(range(100))


def test_a_failure_comes_after_what_was_made_before_it():
    def source():
        yield from "ab"
        raise ValueError("broken")

    items = ahead(source())

    assert [next(items), next(items)] == ["a", "b"]
    with pytest.raises(ValueError, match="broken"):
        next(items)
    assert list(items) == []


def test_an_exit_is_carried_over_too():
    def source():
        yield 1
        raise SystemExit(3)

    items = ahead(source())
    next(items)

    with pytest.raises(SystemExit, match="3"):
        next(items)


def test_it_goes_on_while_nothing_is_taken_but_not_beyond_its_limit():
    made = [threading.Event() for _ in range(9)]

    def source():
        for number, event in enumerate(made):
            event.set()
            yield number

    items = ahead(source(), limit=3)

    # Three are held, and a fourth waits for its place.
    assert made[3].wait(SOON)
    assert not made[4].wait(0.05)
    assert items.n_bytes == 3
    assert next(items) == 0
    assert made[4].wait(SOON)
    assert not made[5].wait(0.05)
    assert list(items) == list(range(1, 9))
    assert items.n_bytes == 0


def test_one_item_is_held_however_large_it_is():
    assert list(ahead([100, 200, 300], limit=50, cost=int)) == [100, 200, 300]


def test_it_says_whether_the_next_is_there():
    go_on, made = threading.Event(), threading.Event()

    def source():
        assert go_on.wait(SOON)
        yield 1
        made.set()

    items = ahead(source())

    assert items.would_wait()
    go_on.set()
    assert made.wait(SOON)
    assert not items.would_wait()
    next(items)
    items.join()
    assert not items.would_wait()


def test_stopping_ends_a_thread_that_waits_for_room_and_closes_its_source_there():
    full = threading.Event()
    closed_in = []

    def source():
        try:
            yield from (1, 2)
            full.set()
            yield 3
        finally:
            closed_in.append(threading.current_thread().name)

    items = ahead(source(), limit=1)
    next(items)
    assert full.wait(SOON)
    items.stop()
    items.join()

    assert closed_in == ["under test"]
    assert list(items) == []
    assert items.n_bytes == 0


def test_a_consumer_in_another_thread_is_let_go():
    go_on = threading.Event()

    def source():
        go_on.wait(SOON)
        yield 1

    items = ahead(source())
    taken = []
    consumer = threading.Thread(target=lambda: taken.extend(items))
    consumer.start()
    items.stop()
    consumer.join(SOON)

    assert not consumer.is_alive()
    assert taken == []
    go_on.set()
    items.join()
