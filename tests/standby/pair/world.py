"""The pair of examples/pair: two machines and a witness, each in network, process and mount namespaces of its own, and clients that
repeat what was not answered with its idempotency key.

Python, since clients, signals and namespaces are a line each in it. Only the standard library.
"""

import collections
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
import uuid

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
EXAMPLES = REPOSITORY / "examples"
PORT = 8080
# Where the test itself is. The examples use the same network.
OUTSIDE = "192.0.2.100"
USERS = {"tenantdesk": 970, "tenantdesk-copy": 971}
# Generous: a time that is exceeded fails the test.
DEADLINE = 120
# How long a client waits for an answer; shorter than a lease.
PATIENCE = 3


def say(text):
    print(text, flush=True)


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def until(what, ask, deadline=DEADLINE):
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        value = ask()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"waited {deadline} s until {what}")


@contextlib.contextmanager
def a_folder():
    """A folder for all machines. After a failure the ends of the scripts' logs are printed. PAIR_KEEP keeps it."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="pair-"))
    folder.chmod(0o755)
    try:
        yield folder
    except BaseException:
        for log in sorted(folder.glob("*/*/log/pair")):
            say(f"--- {log}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-40:]))
        raise
    finally:
        if not os.environ.get("PAIR_KEEP"):
            shutil.rmtree(folder, ignore_errors=True)


def replaced(text, *pairs):
    for old, new in pairs:
        assert old in text, f"the example has no {old!r} any more"
        text = text.replace(old, new)
    return text


def make_network():
    """The network that all machines are in."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "lan", "type", "bridge")
    run("ip", "address", "add", f"{OUTSIDE}/24", "dev", "lan")
    run("ip", "link", "set", "lan", "up")


class Place:
    """The folder of a pair, and its addresses: those of the examples, moved by 20 for each pair."""

    def __init__(self, folder, number):
        self.folder, self.number = folder / f"pair-{number}", number
        self.names = {name: self.moved(f"192.0.2.{last}") for last, name in enumerate(("one", "two", "witness"), 1)}
        self.address = self.moved("192.0.2.10")

    def moved(self, text):
        """A text of the examples with the addresses of this pair."""
        return re.sub(r"192\.0\.2\.(\d+)", lambda found: f"192.0.2.{int(found[1]) + 20 * self.number}", text)


class Machine:
    """A machine: a folder for what is its own, and namespaces while it runs."""

    def __init__(self, place, name, programs):
        self.home, self.name, self.address, self.place = place.folder / name, name, place.names[name], place
        self.is_witness = name == "witness"
        for part in ("etc", "usr/local/bin", "work/etc", "work/usr/local", "srv", "var/lib/etcd", "run", "log", "etc/default", "etc/ssh"):
            (self.home / part).mkdir(parents=True, exist_ok=True)
        (self.home / "var/lib/etcd").chmod(0o700)
        etcd = place.moved((EXAMPLES / "pair/etcd.env").read_text())
        cluster = re.search(r"ETCD_INITIAL_CLUSTER=.*", etcd).group()
        etcd = replaced(etcd.replace(cluster, "@cluster@"), ("ETCD_NAME=one", f"ETCD_NAME={name}"), (place.names["one"], self.address))
        self.write("etc/default/etcd", etcd.replace("@cluster@", cluster))
        for program, path in programs.items():
            target = self.home / "usr/local/bin" / program
            shutil.copyfile(path, target)
            target.chmod(0o755)
        run("cc", "-O2", "-shared", "-fPIC", "-o", self.home / "clock.so", REPOSITORY / "tests/standby/pair/clock.c")
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.home / "etc/ssh/host")
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.home / "etc/tenantdesk-copy.key")
        os.chown(self.home / "etc/tenantdesk-copy.key", USERS["tenantdesk"], USERS["tenantdesk"])

    def write(self, path, text):
        path = self.home / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def join(self, peer):
        """Sets up one of the two as examples/pair/README.md describes."""
        users = "".join(f"{name}:*:{number}:{number}::/nonexistent:/usr/sbin/nologin\n" for name, number in USERS.items())
        groups = "".join(f"{name}:x:{number}:\n" for name, number in USERS.items())
        self.write("etc/passwd", pathlib.Path("/etc/passwd").read_text() + users)
        self.write("etc/group", pathlib.Path("/etc/group").read_text() + groups)
        self.write("etc/tenantdesk.env", f"TENANTDESK_LISTEN=0.0.0.0:{PORT}\nTENANTDESK_RATE_LIMIT=100000000\n"
                   "TENANTDESK_METRICS_LISTEN=127.0.0.1:9180\n")
        settings = self.place.moved((EXAMPLES / "pair/tenantdesk-pair.env").read_text())
        self.write("etc/tenantdesk-pair.env", replaced(settings, ("NAME=one", f"NAME={self.name}"), ("PEER=two", f"PEER={peer.name}")))
        key = " ".join((peer.home / "etc/ssh/host.pub").read_text().split()[:2])
        copy = (EXAMPLES / "pair/tenantdesk-copy.yml").read_text()
        self.write("etc/tenantdesk-copy.yml", replaced(copy, ("two.example", peer.address), ("ssh-ed25519 THE-OTHER-MACHINES-KEY", key)))
        self.write("etc/ssh/sshd_config", "HostKey /etc/ssh/host\nUsePAM no\nPidFile none\nSubsystem sftp internal-sftp\n"
                   + (EXAMPLES / "standby/sshd.conf").read_text())
        self.write("etc/ssh/tenantdesk-copy/authorized_keys", (peer.home / "etc/tenantdesk-copy.key.pub").read_text())

    def environment(self):
        # The clock that is moved is that of sshd, of TenantDesk and of the script. Programs in Go ask the kernel directly.
        return {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "ETCDCTL_API": "3", "LD_PRELOAD": str(self.home / "clock.so"),
                "MOVED_CLOCK": "/run/clock"}

    def boot(self):
        """What a machine starts by itself: etcd and sshd."""
        shutil.rmtree(self.home / "run")
        (self.home / "run/sshd").mkdir(parents=True)
        (self.home / "run/log").mkdir()
        self.move_clock(0)
        command = ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]
        command += [REPOSITORY / "tests/standby/pair/machine", self.home, "witness" if self.is_witness else "pair"]
        self.outside = subprocess.Popen(command, env=self.environment(), start_new_session=True,
                                        stderr=(self.home / "log/machine").open("a"))
        children = pathlib.Path(f"/proc/{self.outside.pid}/task/{self.outside.pid}/children")
        self.first = int(until("the machine has a process", lambda: children.read_text().split())[0])
        cable = self.cable()
        until("the machine has a network of its own", lambda: os.readlink(f"/proc/{self.first}/ns/net") != os.readlink("/proc/self/ns/net"))
        subprocess.run(["ip", "link", "del", cable], capture_output=True)
        run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", self.first)
        run("ip", "link", "set", cable, "master", "lan", "up")
        network = ["nsenter", "-t", self.first, "-n"]
        run(*network, "ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        run(*network, "ip", "link", "set", "eth0", "up")
        (self.home / "run/network-is-up").touch()
        until("the machine has booted", lambda: (self.home / "run/has-booted").exists())

    def cable(self):
        return f"to-{self.name}-{self.place.number}"

    def inside(self, *command, user=None, **options):
        enter = ["nsenter", "-t", self.first, "-a"]
        if user:
            enter += ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        return run(*enter, *command, env=self.environment(), **options)

    def rejoin(self):
        """The one command."""
        self.inside("systemctl", "start", "tenantdesk-pair", timeout=DEADLINE)

    def processes(self):
        namespace = os.readlink(f"/proc/{self.first}/ns/pid")
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.readlink(entry / "ns/pid") == namespace:
                    yield int(entry.name)
            except OSError:
                pass

    def signal(self, number):
        """To every process, also to those that start meanwhile."""
        seen = set()
        while True:
            found = set(self.processes()) - seen
            if not found:
                return
            for process in found:
                try:
                    os.kill(process, number)
                except ProcessLookupError:
                    pass
            seen |= found

    # Faults, and what ends them.

    def kill(self):
        os.kill(self.first, signal.SIGKILL)
        self.outside.wait()

    def after_kill(self):
        self.boot()
        if not self.is_witness:
            self.rejoin()

    def wipe(self):
        """The machine comes back with empty disks, but for that of etcd."""
        self.kill()

    def after_wipe(self):
        for folder in ("srv", "var/lib/tenantdesk"):
            shutil.rmtree(self.home / folder)
        (self.home / "srv").mkdir()
        self.after_kill()

    def stop(self):
        self.signal(signal.SIGSTOP)

    def after_stop(self):
        self.signal(signal.SIGCONT)

    def cut(self):
        run("ip", "link", "set", self.cable(), "nomaster")

    def after_cut(self):
        run("ip", "link", "set", self.cable(), "master", "lan")

    def move_clock(self, seconds):
        with open(self.home / "run/clock", "r+b" if seconds or (self.home / "run/clock").exists() else "wb") as file:
            file.write(struct.pack("q", seconds))

    def hang(self):
        """The script alone is stopped. systemd's watchdog, which would end the server with it, does not run here."""
        self.script = int((self.home / "run/units/tenantdesk-pair").read_text())
        os.killpg(self.of_namespace(self.script), signal.SIGSTOP)

    def after_hang(self):
        """What the unit does when the watchdog has fired."""
        os.killpg(self.of_namespace(self.script), signal.SIGKILL)
        self.inside("systemctl", "stop", "tenantdesk-pair", timeout=DEADLINE)
        self.inside("tenantdesk-pair", "stop", timeout=DEADLINE)
        self.rejoin()

    def of_namespace(self, number):
        """The number out here of a process that has this number in the machine."""
        for process in self.processes():
            status = pathlib.Path(f"/proc/{process}/status").read_text()
            if re.search(rf"NSpid:.*\s{number}$", status, re.MULTILINE):
                return process
        raise AssertionError(f"{self.name} has no process {number}")

    def clock(self):
        self.move_clock(random.choice((-3600, 3600)))

    def after_clock(self):
        self.move_clock(0)


# `began` is the first attempt, `sent` the one that was answered.
Answer = collections.namedtuple("Answer", "tenant name id request began sent received")


class Client(threading.Thread):
    """Makes one customer after another, each until it is answered."""

    # What is repeated; None is no answer.
    refusals = (None, 503)

    def __init__(self, keys, pause, address):
        super().__init__(daemon=True)
        self.keys, self.pause, self.address = keys, pause, address
        self.connection, self.answers, self.stale, self.slowest = None, [], [], 0.0
        self.idle, self.failure = threading.Event(), None

    def run(self):
        try:
            while True:
                while self.pause.is_set():
                    self.idle.set()
                    time.sleep(0.02)
                self.idle.clear()
                self.make(self.choose())
                time.sleep(0.02)
        except Exception as failure:  # noqa: BLE001
            self.failure = failure
            self.idle.set()

    def choose(self):
        return random.randrange(len(self.keys))

    def connect(self, _tenant):
        return http.client.HTTPConnection(self.address, PORT, timeout=PATIENCE)

    def make(self, tenant):
        name, key, began = f"entry {uuid.uuid4()}", str(uuid.uuid4()), time.monotonic()
        while True:
            sent = time.monotonic()
            status, request, body = self.ask(tenant, "POST", "/customers.php", {"name": name}, key)
            if status == 201:
                break
            assert status in self.refusals, f"{status} {body}"
            time.sleep(0.1)
        received = time.monotonic()
        self.slowest = max(self.slowest, received - began)
        self.answers.append(Answer(tenant, name, body["id"], request, began, sent, received))
        # Who reads afterwards sees it.
        status, request, body = self.ask(tenant, "GET", f"/customers.php?id={body['id']}")
        if status not in self.refusals and not (status == 200 and body["name"] == name):
            self.stale.append(request)

    def ask(self, tenant, method, target, body=None, key=None):
        """Status, request id and body; without an answer None."""
        headers = {"Authorization": f"Bearer {self.keys[tenant]}", "Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        try:
            if self.connection is None:
                self.connection = self.connect(tenant)
            self.connection.request(method, target, body and json.dumps(body), headers)
            response = self.connection.getresponse()
            return response.status, response.headers["x-request-id"], json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError):
            if self.connection:
                self.connection.close()
            self.connection = None
            return None, None, None


class World:
    """The three machines of a pair, its tenants and its clients."""

    def __init__(self, place, tenantdesk, litestream, tenants):
        place.folder.mkdir()
        self.place = place
        programs = {"tenantdesk": tenantdesk, "litestream": litestream, "take-over": EXAMPLES / "standby/take-over",
                    "tenantdesk-pair": EXAMPLES / "pair/tenantdesk-pair", "systemctl": REPOSITORY / "tests/standby/pair/systemctl"}
        self.machines = {name: Machine(place, name, {} if name == "witness" else programs) for name in place.names}
        self.one, self.two, self.witness = self.machines.values()
        self.one.join(self.two)
        self.two.join(self.one)
        for machine in self.machines.values():
            machine.boot()
        self.one.inside("install", "-d", "-m", "700", "-o", "tenantdesk", "-g", "tenantdesk", "/var/lib/tenantdesk")
        self.keys = []
        desk = ("tenantdesk", "--data-dir", "/var/lib/tenantdesk")
        for name in tenants:
            self.one.inside(*desk, "tenant", "create", name, user="tenantdesk")
            made = self.one.inside(*desk, "key", "create", name, "--name", "test", "--scope", "all", user="tenantdesk")
            self.keys.append(made.strip())
        until("etcd answers", self.etcd_answers)
        until("the pair has begun", self.begins)
        self.one.rejoin()
        self.two.rejoin()
        self.pause = threading.Event()
        self.clients = []

    def client(self, address=None):
        """A client of the address that clients use, or of another one."""
        return Client(self.keys, self.pause, address or self.place.address)

    def begins(self):
        """On a busy machine etcd may take longer than the command waits."""
        try:
            self.one.inside("tenantdesk-pair", "init")
            return True
        except AssertionError:
            self.one.inside("etcdctl", "del", "tenantdesk/state")
            return False

    def etcd_answers(self):
        try:
            return self.etcd() or True
        except AssertionError:
            return False

    def etcd(self):
        lines = self.witness.inside("etcdctl", "--command-timeout=2s", "get", "--prefix", "tenantdesk/", timeout=10).splitlines()
        return dict(zip(lines[::2], lines[1::2]))

    def leader(self):
        try:
            return self.etcd().get("tenantdesk/leader", ":").split(":")[1]
        except AssertionError:
            return ""

    def in_sync(self):
        try:
            keys = self.etcd()
        except AssertionError:
            return False
        return "tenantdesk/leader" in keys and not keys["tenantdesk/state"].endswith(":-")

    def answers(self):
        for client in self.clients:
            if client.failure:
                raise client.failure
        return sorted((answer for client in self.clients for answer in list(client.answers)), key=lambda answer: answer.received)

    def answered_since(self, moment):
        return any(client.answers and client.answers[-1].sent > moment for client in self.clients)

    def rest(self):
        """Every client ends what it is about."""
        self.pause.set()
        until("no client waits", lambda: self.answers() and all(client.idle.is_set() for client in self.clients))

    def go_on(self):
        for client in self.clients:
            client.idle.clear()
        self.pause.clear()

    def records(self, tenant):
        reader, found, target = self.client(), [], "/customers.php?limit=200"
        while target:
            status, _, body = until("a list is answered", lambda: (lambda got: got if got[0] == 200 else None)(
                reader.ask(tenant, "GET", target)))
            assert status == 200
            rows = body["data"]
            found += [(row["name"], row["id"]) for row in rows]
            cursor = body.get("next_cursor")
            target = f"/customers.php?limit=200&cursor={cursor}" if cursor else None
        return found

    def epochs(self):
        """Which epoch and machine answered each request."""
        found = {}
        for machine in (self.one, self.two):
            for log in machine.home.glob("log/serve.*"):
                answered = (int(log.suffix[1:]), machine.name)
                for request in re.findall(r"request_id=(\S+)", log.read_text()):
                    found[request] = answered
        return found

    def verify(self, fault):
        """Returns how many records were compared, and how many answers the logs of killed machines lack."""
        answers = self.answers()
        for tenant in range(len(self.keys)):
            answered = sorted((answer.name, answer.id) for answer in answers if answer.tenant == tenant)
            found = sorted(self.records(tenant))
            lost, extra = set(answered) - set(found), set(found) - set(answered)
            assert not lost and not extra and len(found) == len(answered), f"tenant {tenant}: lost {lost}, doubled or unknown {extra}"
        epochs, latest, missing = self.epochs(), 0, 0
        machines = collections.defaultdict(set)
        for answer in answers:
            epoch, machine = epochs.get(answer.request, (None, None))
            if epoch is None:
                missing += 1
                continue
            assert epoch >= latest, f"epoch {epoch} on {machine} answered {answer} after epoch {latest} had"
            latest = epoch
            machines[epoch].add(machine)
        assert all(len(served) == 1 for served in machines.values()), machines
        stale = [request for client in self.clients for request in client.stale]
        assert not stale or fault == "hang", f"reads without what had been answered: {stale}"
        leader = self.machines[self.leader()]
        leader.inside("tenantdesk", "--data-dir", "/var/lib/tenantdesk", "check", user="tenantdesk")
        return len(answers), missing, len(stale)
