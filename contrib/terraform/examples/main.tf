# A site with one machine, which is installed. The cluster is the current context of the CLI, or TRIVET_ENDPOINTS,
# TRIVET_TRUST and TRIVET_TOKEN.

terraform {
  required_providers {
    trivet = { source = "trivet-project/trivet" }
  }
}

variable "cidr" { default = "10.20.0.0/24" }
variable "first" { default = "10.20.0.100" }
variable "last" { default = "10.20.0.200" }
variable "mac" { default = "52:54:00:12:34:56" }
variable "hostname" { default = "web1" }

variable "bmc_password" {
  default   = "change-me"
  sensitive = true
  ephemeral = true
}

provider "trivet" {}

resource "trivet_network" "boot" {
  name = "boot"
  spec = yamlencode({
    cidr   = var.cidr
    ranges = [{ from = var.first, to = var.last }]
  })
}

# The values are in no state and no plan.
resource "trivet_secret" "bmc" {
  name = "bmc"
  spec = yamlencode({ addresses = ["10.20.8.0/24"] })
  data = { user = "root", password = var.bmc_password }
}

resource "trivet_template" "base" {
  name = "base"
  spec = yamlencode({
    description = "wipe, seed cloud-init, reboot"
    actions = [
      { name = "wipe", use = "wipe", timeout = "30m" },
      { name = "seed", use = "seed" },
      { name = "reboot", use = "reboot" },
    ]
  })
}

resource "trivet_machine" "m1" {
  name   = "m1"
  labels = { pool = "web" }
  spec = yamlencode({
    rack = "r1"
    nics = [{ mac = var.mac }]
  })
}

# It waits until a machine of the pool is installed.
resource "trivet_provision" "web1" {
  name = "web1"
  spec = yamlencode({
    template = trivet_template.base.name
    selector = trivet_machine.m1.labels
    hostname = var.hostname
  })
  timeouts   = { create = "45m" }
  depends_on = [trivet_network.boot]
}

resource "trivet_account" "ci" {
  name = "ci"
  spec = yamlencode({ role = "viewer" })
}

resource "trivet_token" "ci" {
  account = trivet_account.ci.name
  expires = "2099-12-31T00:00:00Z"
}

output "machine" {
  value = jsondecode(trivet_provision.web1.status).machine
}

output "token" {
  value     = trivet_token.ci.value
  sensitive = true
}
