"""The monitor page in a real browser: a scan is sent while it is open."""

import logging
import re
import shutil
import threading
from contextlib import ExitStack

import pytest
from scripted_sampling import ScriptedSampling, ramp
from simulated_scans import MATRIX, StandIn, reconstructor, scan_messages, settings

from gadget.answering import Peer
from gadget.client import send_scan
from gadget.operations.journal import Journal
from gadget.operations.latency import LatencyWatch
from gadget.operations.monitor import Monitor
from gadget.operations.server_status import Condition, ServerStatus
from gadget.pipeline import reconstruct_stream
from gadget.server import Server
from gadget.wire.messages import ConfigFile, Image

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --window-size=1280,1400"
)
PIXELS = """
const image = arguments[0];
const canvas = document.createElement("canvas");
canvas.width = image.naturalWidth;
canvas.height = image.naturalHeight;
const context = canvas.getContext("2d");
context.drawImage(image, 0, 0);
const data = context.getImageData(0, 0, canvas.width, canvas.height).data;
return Array.from(data).filter((_, index) => index % 4 === 0);
"""
"""The red values of a picture, row by row."""
TABLET = {"width": 820, "height": 1180, "deviceScaleFactor": 1, "mobile": True}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Return a headless Chromium."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("no chromium and chromedriver on the PATH (Debian: chromium, chromium-driver)")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    one = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield one
    one.quit()


class Site:
    """A server with its monitor, and a browser that has the page open."""

    def __init__(self, browser, stack: ExitStack) -> None:
        self.browser = browser
        self.status = ServerStatus()
        journal = Journal()
        self.server = stack.enter_context(
            Server(self.handle, hosts=("127.0.0.1",), port=0, watch_factories=[LatencyWatch, journal.watch])
        )
        serving = threading.Thread(target=self.server.serve_forever)
        serving.start()
        stack.callback(serving.join)
        stack.callback(self.server.stop)
        self.monitor = stack.enter_context(Monitor(journal, lambda: self.status, port=0))
        browser.get(self.monitor.address)
        stack.callback(browser.get, "about:blank")
        self.until(lambda: self.text("#condition-words") == "ready")

    def handle(self, messages, peer: Peer):
        made = reconstructor(StandIn(misbehave=ramp), sampling=ScriptedSampling())
        chosen = settings(posterior__enabled=True)
        return reconstruct_stream(
            messages, chosen, reconstructor=made, cancelled=peer.cancelled, silent=peer.silent
        )

    def send(self, folder, n_slices):
        """Send a scan; return its images."""
        messages = [ConfigFile("default"), *scan_messages(folder, n_slices=n_slices)]
        answers = send_scan(messages, *self.server.addresses[0])
        return [one for one in answers if isinstance(one, Image)]

    def all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def text(self, selector):
        return self.browser.find_element("css selector", selector).text

    def until(self, holds):
        """Wait for something to be true of the page, which may redraw meanwhile."""
        from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
        from selenium.webdriver.support.wait import WebDriverWait

        ignored = (NoSuchElementException, StaleElementReferenceException)
        WebDriverWait(self.browser, 20, 0.1, ignored).until(lambda _: holds())

    def pixels(self, image):
        return self.browser.execute_script(PIXELS, image)

    def errors(self):
        """Return what the browser complains about, a policy that was broken included."""
        return self.browser.get_log("browser")


@pytest.fixture
def site(browser):
    with ExitStack() as stack:
        yield Site(browser, stack)


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, logger="gadget")
    return caplog


def test_a_scan_that_is_sent_while_the_page_is_open_appears_on_it(site, tmp_path, log):
    assert site.text("#no-scans")
    assert not site.all("#slices .slice")

    sent = site.send(tmp_path, n_slices=3)

    assert len(sent) == 9
    site.until(lambda: len(site.all("#slices figure img")) == 9 and site.all("#scans tr"))
    lines = "\n".join(record.getMessage() for record in log.records)
    # The pictures are there, and of what was sent: the stand-in's image rises along y.
    for image in site.all("#slices figure img"):
        site.until(lambda image=image: image.get_property("complete"))
        assert (image.get_property("naturalHeight"), image.get_property("naturalWidth")) == MATRIX
        red = site.pixels(image)
        assert sum(red[: MATRIX[1]]) < sum(red[-MATRIX[1] :])
        assert len(set(red)) > 10
    # The numbers are those of the log.
    for number, card in enumerate(reversed(site.all("#slices .slice"))):
        assert f"slice {number}" in card.text
        facts = {one.get_attribute("data-fact"): one.text for one in card.find_elements("css selector", "dd")}
        assert f"image {number + 1} of series 1, slice {number}: sent {facts['latency']} after" in lines
        (line,) = re.findall(rf"^slice {number}: (?!.*uncertainty).*", lines, re.MULTILINE)
        assert f"weight {facts['weight']}" in line
        assert f"prior {facts['prior']}" in line
        assert facts["outcome"] in line
    median, most = re.search(r"3 images of series 1, .* median (\S+) s, 95 % within (\S+) s", lines).groups()
    row = [cell.text for cell in site.all("#scans tr td")]
    assert (row[2], row[4], row[5], row[6]) == ("done", "3 / 3", median, most)
    assert (site.text("#latency-median"), site.text("#latency-p95")) == (median, most)
    assert site.text("#count-images") == "9"
    assert site.errors() == []


def test_a_slice_opens_large_with_values_under_the_pointer(site, tmp_path):
    from selenium.webdriver import ActionChains, Keys

    sent = site.send(tmp_path, n_slices=1)[0].data[0, 0]
    site.until(lambda: len(site.all("#slices figure img")) == 3)
    site.all("#slices .slice")[0].click()
    site.until(lambda: all(one.get_property("complete") for one in site.all("#viewer .frame img")))
    frames = site.all("#viewer .frame")
    assert len(frames) == 3

    def value(name):
        return float(re.search(rf"{name} (?:at least )?(\S+)", site.text("#viewer-values"))[1])

    def point_and_read():
        ActionChains(site.browser).move_to_element_with_offset(frames[0], 0, 2).move_to_element(
            frames[0]
        ).perform()
        text = site.text("#viewer-values")
        return all(name in text for name in ("image", "posterior mean", "standard deviation"))

    site.until(point_and_read)
    # ScriptedSampling: the mean is the image, the standard deviation a tenth of it.
    x, y = map(int, re.search(r"x (\d+), y (\d+)", site.text("#viewer-values")).groups())
    assert (x, y) == pytest.approx((MATRIX[1] / 2, MATRIX[0] / 2), abs=1.0)  # the pointer is in the middle
    assert (
        value("image")
        == value("posterior mean")
        == pytest.approx(float(sent[y, x]), abs=float(sent.max()) / 200)
    )
    assert value("standard deviation") == pytest.approx(value("image") / 10, rel=0.02)
    ActionChains(site.browser).send_keys(Keys.ESCAPE).perform()
    site.until(lambda: not site.browser.find_element("id", "viewer").is_displayed())
    assert site.errors() == []


def test_the_page_says_how_the_server_is(site):
    logging.getLogger("gadget.front").error("the process that reconstructs was killed")
    site.status = ServerStatus(condition=Condition.RESTARTING)

    site.until(lambda: site.text("#condition-words") == Condition.RESTARTING.value)
    assert site.browser.find_element("id", "condition").get_attribute("data-tone") == "error"
    assert "the process that reconstructs was killed" in site.text("#problem-list")
    assert site.text("#count-errors") == "1"
    site.monitor.close()
    site.until(lambda: "no connection to the server" in site.text("#condition-words"))


def test_it_fits_a_tablet_in_light_and_dark(site, tmp_path):
    site.send(tmp_path, n_slices=2)
    site.until(lambda: len(site.all("#slices figure img")) == 6)
    site.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", TABLET)
    colours = []
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        site.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        colours.append(
            site.browser.find_element("tag name", "body").value_of_css_property("background-color")
        )
    overhang = site.browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
    site.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    assert overhang <= 0
    light, dark = (sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours)
    assert dark < 100 < 600 < light


def test_the_browser_asks_nobody_else(site, tmp_path):
    site.send(tmp_path, n_slices=1)
    site.until(lambda: len(site.all("#slices figure img")) == 3)
    asked = site.browser.execute_script(
        "return performance.getEntriesByType('resource').map((entry) => entry.name)"
    )

    assert len(asked) >= 6
    assert [one for one in asked if not one.startswith(site.monitor.address)] == []
