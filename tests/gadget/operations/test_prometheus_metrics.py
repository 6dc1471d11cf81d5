"""``/metrics``, read by Prometheus' own client library."""

import os
import resource

import pytest
from prometheus_client.parser import text_string_to_metric_families
from watched import CONFIG, HEADER, SECRETS, image, look_on, readout, reconstruction

from gadget.answering import Ending
from gadget.errors import GadgetError
from gadget.operations.journal import Journal
from gadget.operations.metrics import metrics_text
from gadget.operations.process_figures import process_figures
from gadget.operations.server_status import Condition, ServerStatus
from gadget.operations.totals import Histogram


@pytest.fixture
def journal():
    return Journal(lambda: 1_000_000.0)


def samples(journal, status=None):
    """Return all samples, by name and labels, as Prometheus reads them."""
    text = metrics_text(journal, status or ServerStatus())
    assert text.endswith("\n")
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        assert family.type in ("counter", "gauge", "histogram")
        for one in family.samples:
            key = (one.name, *sorted(one.labels.items()))
            assert key not in found
            found[key] = one.value
    return found


def test_scans_and_images_are_counted(journal):
    look_on(journal.watch("a"))
    look_on(journal.watch("b"), ending=Ending(3, 0, True, GadgetError("x"), False, 1.0))
    look_on(journal.watch("c"), ending=Ending(3, 0, True, None, True, 1.0))
    look_on(journal.watch("d"), ending=None)
    probe = journal.watch("e")
    probe.received(CONFIG, 0.0)
    probe.ended(Ending(1, 0, False, None, False, 0.0))
    other = journal.watch("f")
    other.sent(image(), 1.0)
    other.sent(reconstruction(Image="FALLBACK"), 1.0)
    journal.note_problem("warning", "w")

    found = samples(journal)

    assert found["gadgetron_ebm_scans_total", ("outcome", "done")] == 1
    assert found["gadgetron_ebm_scans_total", ("outcome", "failed")] == 1
    assert found["gadgetron_ebm_scans_total", ("outcome", "abandoned")] == 1
    assert found["gadgetron_ebm_scans_running",] == 2
    assert found["gadgetron_ebm_probes_total",] == 1
    assert found["gadgetron_ebm_images_sent_total", ("kind", "reconstructed")] == 12
    assert found["gadgetron_ebm_images_sent_total", ("kind", "fallback")] == 1
    assert found["gadgetron_ebm_images_sent_total", ("kind", "passed_on")] == 1
    assert found["gadgetron_ebm_images_sent_total", ("kind", "posterior_std")] == 0
    assert found["gadgetron_ebm_received_messages_total",] == 12
    assert found["gadgetron_ebm_received_bytes_total",] == 12 * 4 * 16 * 8
    assert found["gadgetron_ebm_log_messages_total", ("level", "warning")] == 1
    assert found["gadgetron_ebm_log_messages_total", ("level", "error")] == 0


def test_latencies_are_a_histogram(journal):
    look_on(journal.watch("a"))  # 2.25, 1.5, 0.75 s

    found = samples(journal)

    def up_to(bound):
        return found["gadgetron_ebm_image_latency_seconds_bucket", ("le", bound)]

    assert [up_to(bound) for bound in ("0.5", "1", "2", "5", "500", "+Inf")] == [0, 1, 2, 3, 3, 3]
    assert found["gadgetron_ebm_image_latency_seconds_count",] == 3
    assert found["gadgetron_ebm_image_latency_seconds_sum",] == 4.5
    assert found["gadgetron_ebm_reconstruction_seconds_sum",] == pytest.approx(3 * 1.26)


def test_a_bound_of_a_histogram_belongs_to_it():
    histogram = Histogram((1.0, 2.0))
    for value in (1.0, 1.5, 2.0, 2.5):
        histogram.add(value)

    assert histogram.counts == [1, 2, 1]


@pytest.mark.parametrize("condition", list(Condition))
def test_the_state_of_the_server_is_told(journal, condition):
    status = ServerStatus(condition=condition, n_restarts=2, n_connections=3, queued_bytes=1500)

    found = samples(journal, status)

    assert found["gadgetron_ebm_ready",] == (condition is Condition.READY)
    assert found["gadgetron_ebm_worker_restarts_total",] == 2
    assert found["gadgetron_ebm_connections",] == 3
    assert found["gadgetron_ebm_queued_bytes",] == 1500
    assert ("gadgetron_ebm_worker_resident_memory_bytes",) not in found


def test_both_processes_tell_their_memory(journal):
    found = samples(journal, ServerStatus(worker_pid=os.getpid()))

    own = found["process_resident_memory_bytes",]
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert 0.2 * peak < own <= 1.05 * peak
    assert found["gadgetron_ebm_worker_resident_memory_bytes",] == pytest.approx(own, rel=0.1)
    used = resource.getrusage(resource.RUSAGE_SELF)
    assert found["process_cpu_seconds_total",] == pytest.approx(used.ru_utime + used.ru_stime, abs=0.5)
    assert found["process_open_fds",] >= 3
    assert found["process_start_time_seconds",] == 1_000_000


def test_a_process_that_is_gone_has_no_figures():
    assert process_figures(2**30) is None


def test_nothing_of_a_header_is_in_the_metrics(journal):
    watch = journal.watch("peer")
    watch.received(HEADER, 0.0)
    watch.received(readout(), 0.0)
    watch.sent(image(1, Image="DOE^JANE", Prior="JANE"), 1.0)

    text = metrics_text(journal, ServerStatus())
    assert not [secret for secret in SECRETS if secret in text]
