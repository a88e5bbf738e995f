#!/usr/bin/env python3
"""Ansible dynamic inventory of the machines of a Trivet cluster. README.md beside this file describes it.

    trivet.py --list         all hosts, groups and host variables, as JSON
    trivet.py --host NAME    the variables of one host

It needs Python 3.8 or later and the program trivet. It calls trivet three times, whatever the number of machines, and
prints either the whole inventory or nothing, with exit status 1.
"""

import argparse
import hashlib
import ipaddress
import json
import os
import re
import subprocess
import sys

STATES = ("discovered", "available", "claimed", "provisioning", "active", "releasing", "quarantined", "unverified")

# The kinds that are read, each by one call, in this order.
KINDS = ("machines", "provisions", "addresses")

# CALL_TIMEOUT bounds one call, in seconds. The program has a shorter limit of its own for heads that do not answer.
CALL_TIMEOUT = 300

DEFAULT_PROJECT = "default"

# The forms of what Ansible has as names and keys, which it does not mark as data. Heads permit no others.
NAME = re.compile(r"[a-z0-9]([-a-z0-9.:]*[a-z0-9])?")
LABEL_KEY = re.compile(r"[A-Za-z0-9]([-_./A-Za-z0-9]*[A-Za-z0-9])?")

NEXT_HEADS = "start a head, or set TRIVET_ENDPOINTS to one that runs (docs/heads.md)"
NEXT_LOGIN = "run trivet login, and check the account with trivet whoami"
NEXT_RELEASE = "use this script and the program trivet of the same release; TRIVET names the program"


class Failure(Exception):
    """What is wrong, and what to do next."""

    def __init__(self, problem, next_step):
        super().__init__(f"{problem}\n  next: {next_step}")


# Reading.


def states_wanted(setting):
    """Returns the states of TRIVET_INVENTORY_STATES."""
    wanted = [state.strip() for state in setting.split(",")]
    for state in wanted:
        if state not in STATES:
            raise Failure(f"TRIVET_INVENTORY_STATES: there is no state {state!a}",
                          "use one or more of " + ",".join(STATES))
    return wanted


def run(program, kind):
    """Returns what one call of the program prints, and passes its warnings on."""
    command = [program, "get", kind, "--all-projects", "--output", "json"]
    shown = " ".join(command)
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=CALL_TIMEOUT, check=False)
    except FileNotFoundError:
        raise Failure(f"the program {program!a} was not found",
                      "install trivet in a directory of PATH, or set TRIVET to its path") from None
    except subprocess.TimeoutExpired:
        raise Failure(f"{shown}: no end after {CALL_TIMEOUT} s", "run trivet status") from None
    except OSError as error:
        raise Failure(f"{shown}: {error.strerror}", "set TRIVET to the path of the program trivet") from None
    messages = done.stderr.decode("utf-8", "replace").strip()
    if done.returncode != 0:
        raise Failure(f"{shown}: exit status {done.returncode}\n{messages}", next_step_for(messages, shown))
    if messages:
        warn(messages)
    return done.stdout


def next_step_for(messages, command):
    """Returns what to do about an error of the program."""
    if "no head can be reached" in messages:
        return NEXT_HEADS
    if "trivet login" in messages or "unauthenticated" in messages:
        return NEXT_LOGIN
    return "repeat this command by itself, as the same user: " + command


def read(program, kind):
    """Returns all records of a kind."""
    try:
        records = json.loads(run(program, kind))
    except ValueError as error:
        raise Failure(f"{program} get {kind}: its output is not JSON: {error}", NEXT_RELEASE) from None
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise Failure(f"{program} get {kind}: its output is not a list of records", NEXT_RELEASE)
    return records


def value(record, path, kind, default):
    """Returns a field of a record, such as status.state, or the default where the record does not have it."""
    found = record
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if found is None:
        return default
    if not isinstance(found, kind):
        raise Failure(f"{record.get('kind')} {record.get('name')!a}: {path} is of an unknown form", NEXT_RELEASE)
    return found


def text(record, path):
    """Returns a text of a record; empty where the record does not have it."""
    return value(record, path, str, "")


# Names in projects, as the program shows them: without the default project.


def full_name(project, name):
    """Returns project/name for a name that a record of a project refers to."""
    return name if "/" in name else f"{project or DEFAULT_PROJECT}/{name}"


def short_name(full):
    """Returns a full name without the default project."""
    project, name = full.split("/", 1)
    return name if project == DEFAULT_PROJECT else full


# Variables.


def unsafe(data):
    """Marks a text for Ansible as data, which is never evaluated as a template."""
    return {"__ansible_unsafe": data}


def labels_of(machine):
    """Returns the labels of a machine."""
    labels = value(machine, "labels", dict, {})
    for key, label in labels.items():
        if not LABEL_KEY.fullmatch(key):
            raise Failure(f"{key!a} is not the key of a label", NEXT_RELEASE)
        if not isinstance(label, str):
            raise Failure(f"Machine {machine['name']!a}: a label is of an unknown form", NEXT_RELEASE)
    return labels


def nics_of(machine):
    """Returns the ports of a machine as (MAC, fixed address), in their order."""
    nics = value(machine, "spec.nics", list, [])
    return [(text(nic, "mac"), text(nic, "address")) for nic in nics if isinstance(nic, dict)]


def address_of(machine, provision, leases):
    """Returns the address of a machine: of its installed system, or fixed, or leased; empty where none is known."""
    uid, nics = text(machine, "uid"), nics_of(machine)
    found = []
    if text(provision, "status.machineUID") == uid:
        found.append(text(provision, "status.address"))
    found += [address for _, address in nics]
    found += [address for mac, _ in nics for address in leases.get((uid, mac), [])]
    for address in filter(None, found):
        try:
            return str(ipaddress.ip_address(address))
        except ValueError:
            raise Failure(f"Machine {machine['name']!a}: {address!a} is not an address", NEXT_RELEASE) from None
    return ""


def leases_of(addresses):
    """Returns the addresses in use, in ascending order, by UID and MAC of the machine."""
    leases = {}
    for record in addresses:
        unused = any(value(record, "status." + flag, bool, False) for flag in ("released", "declined"))
        owner = text(record, "spec.machineUID"), text(record, "spec.mac")
        if all(owner) and not unused:
            leases.setdefault(owner, []).append(text(record, "name"))
    for names in leases.values():
        names.sort(key=lambda name: (len(name), name))
    return leases


class Host:
    """A machine, with what the inventory has of it."""

    def __init__(self, machine, provisions, leases):
        self.name = text(machine, "name")
        if not NAME.fullmatch(self.name):
            raise Failure(f"{self.name!a} is not the name of a machine", NEXT_RELEASE)
        self.provision = self.project = self.template = self.owner = ""
        provision = self.set_provision(text(machine, "status.provision"), provisions)
        self.labels = labels_of(machine)
        self.rack = text(machine, "spec.rack")
        self.state = text(machine, "status.state")
        self.arch = text(machine, "status.inventory.arch") or text(machine, "spec.arch")
        self.variables = self.variables_of(machine)
        address = address_of(machine, provision, leases)
        if address:
            self.variables["ansible_host"] = address

    def set_provision(self, name, provisions):
        """Sets the provision that the machine serves, its project, template and owner. Returns its record."""
        if not name:
            return {}
        full = full_name(DEFAULT_PROJECT, name)
        self.provision, self.project = short_name(full), full.split("/", 1)[0]
        provision = provisions.get(full, {})
        if text(provision, "spec.template"):
            self.template = short_name(full_name(self.project, text(provision, "spec.template")))
        if text(provision, "status.memberOf"):
            self.owner = short_name(full_name(self.project, text(provision, "status.memberOf")))
        return provision

    def variables_of(self, machine):
        """Returns the variables but for ansible_host. No other field of the records is in the inventory."""
        macs = [mac for mac, _ in nics_of(machine)]
        texts = {
            "trivet_uid": text(machine, "uid"),
            "trivet_state": self.state,
            "trivet_project": self.project,
            "trivet_provision": self.provision,
            "trivet_template": self.template,
            "trivet_rack": self.rack,
            "trivet_arch": self.arch,
            "trivet_mac": macs[0] if macs else "",
            "trivet_vendor": text(machine, "status.inventory.vendor"),
            "trivet_product": text(machine, "status.inventory.product"),
            "trivet_serial": text(machine, "status.inventory.serial"),
        }
        variables = {name: unsafe(data) for name, data in texts.items()}
        variables["trivet_macs"] = [unsafe(mac) for mac in macs]
        variables["trivet_labels"] = {key: unsafe(label) for key, label in self.labels.items()}
        return variables

    def groups(self):
        """Returns the groups of the host, each as a kind and what it is named after: ("label", "pool", "web")."""
        named = [("state", self.state), ("project", self.project), ("provision", self.provision),
                 ("provision", self.owner), ("template", self.template), ("rack", self.rack), ("arch", self.arch)]
        named = [group for group in named if group[1]]
        return set(named + [("label", key, label) for key, label in self.labels.items()])


# Groups.


def group_name(group):
    """Returns a group's name, of the characters that Ansible permits: a label without a value is label_KEY."""
    return re.sub(r"[^A-Za-z0-9_]", "_", "_".join(part for part in group if part))


def shown_group(group):
    """Returns a group for people: label pool='web'."""
    return f"{group[0]} " + "=".join([part if NAME.fullmatch(part) else ascii(part) for part in group[1:]])


def names_of(groups):
    """Returns the name of each group. Those that would have the same name get a part of their digest in addition."""
    alike = {}
    for group in sorted(groups):
        alike.setdefault(group_name(group), []).append(group)
    names = {}
    for name, same in alike.items():
        for group in same:
            names[group] = name if len(same) == 1 else f"{name}_{digest_of(group)}"
        if len(same) > 1:
            warn(f"no group is named {name}, as several would be: "
                 + ", ".join(f"{shown_group(group)} is group {names[group]}" for group in same))
    if len(set(names.values())) < len(names):
        raise Failure("several groups have the same name, also with their digests", "change one of the labels above")
    return names


def digest_of(group):
    """Returns 8 digits that depend on nothing but the group."""
    return hashlib.sha256(json.dumps(group).encode()).hexdigest()[:8]


# The inventory.


def hosts_of(program, wanted):
    """Reads the records, and returns the machines in the wanted states, by name."""
    machines, provisions, addresses = [read(program, kind) for kind in KINDS]
    by_name = {full_name(text(record, "project"), text(record, "name")): record for record in provisions}
    leases = leases_of(addresses)
    hosts = [Host(record, by_name, leases) for record in machines if text(record, "status.state") in wanted]
    return {host.name: host for host in hosts}


def inventory_of(hosts):
    """Returns the inventory as Ansible reads it. All hosts are in the group trivet."""
    members = {}
    for name in sorted(hosts):
        for group in hosts[name].groups():
            members.setdefault(group, []).append(name)
    names = names_of(members)
    inventory = {names[group]: {"hosts": members[group]} for group in members}
    inventory["trivet"] = {"hosts": sorted(hosts)}
    inventory["_meta"] = {"hostvars": {name: host.variables for name, host in hosts.items()}}
    return inventory


def warn(message):
    """Prints a warning, which Ansible shows."""
    print("trivet.py: warning: " + message, file=sys.stderr)


def arguments():
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(description="Ansible dynamic inventory of the machines of a Trivet cluster.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true", help="all hosts, groups and host variables, as JSON")
    what.add_argument("--host", metavar="NAME", help="the variables of one host")
    return parser.parse_args()


def answer(host):
    """Returns what is printed: the variables of a host, or the inventory."""
    wanted = states_wanted(os.environ.get("TRIVET_INVENTORY_STATES") or "active")
    hosts = hosts_of(os.environ.get("TRIVET") or "trivet", wanted)
    if host is None:
        return inventory_of(hosts)
    if host not in hosts:
        raise Failure(f"no machine {host!a} is {' or '.join(wanted)}",
                      "see trivet get machines, and set TRIVET_INVENTORY_STATES for other states")
    return hosts[host].variables


def main():
    """Prints the answer whole, or an error."""
    host = arguments().host
    try:
        printed = json.dumps(answer(host), indent=2, sort_keys=True)
    except Failure as failure:
        print(f"trivet.py: {failure}", file=sys.stderr)
        return 1
    print(printed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
