# Renders the cloud-init user data of a host that runs `weir dev` as a service. Provider-neutral: pass `user_data` to
# whatever makes the machine. One host; clusters are not built yet. scripts/terraform runs the tests, main.tftest.hcl.
terraform {
  required_version = ">= 1.5"
}

variable "binary_url" {
  description = "Where the host downloads the weir binary from, over HTTPS."
  type        = string
  validation {
    condition     = can(regex("^https://[^\\s'\"\\\\]+$", var.binary_url))
    error_message = "binary_url begins with https:// and has neither spaces, quotes nor backslashes (write %20, %27, %22, %5C)."
  }
}

variable "binary_sha256" {
  description = "SHA-256 of the binary in hexadecimal: another one is not installed. null: whatever binary_url answers is."
  type        = string
  default     = null
  validation {
    condition     = var.binary_sha256 == null || can(regex("^[0-9a-f]{64}$", var.binary_sha256))
    error_message = "binary_sha256 is 64 digits of 0-9 and a-f, as sha256sum prints them."
  }
}

variable "data_dir" {
  description = "Directory of the data, on the disk that shall keep it. Made if missing, and given to the user weir with all that is in it."
  type        = string
  default     = "/var/lib/weir"
  # A unit, YAML and a shell read it, each with quotes of its own.
  validation {
    condition     = can(regex("^(/[A-Za-z0-9_][A-Za-z0-9._-]*)+$", var.data_dir))
    error_message = "data_dir is an absolute path of letters, digits, dots, - and _ alone, without a slash at its end."
  }
  validation {
    condition     = !can(regex("^/((home|root|tmp|run|var/tmp|var/run)(/.*)?|(bin|boot|dev|etc|lib|lib32|lib64|libx32|proc|sbin|sys|usr)(/.*)?|(media|mnt|opt|srv|var|var/(backups|cache|lib|local|log|mail|opt|spool)))$", var.data_dir))
    error_message = "data_dir is a directory for Weir alone: not one of the system's, which would be given to the user weir as a whole, and below neither /home, /root, /run nor /tmp, which the service does not see."
  }
}

variable "journal_max" {
  description = "Size at which publishes are refused until retention has freed some, as `weir dev --journal-max` takes it."
  type        = string
  default     = "32GiB"
  validation {
    condition     = can(regex("^([0-9]+(B|KiB|MiB|GiB|TiB)?|unlimited)$", var.journal_max))
    error_message = "journal_max is a number with one of the units KiB, MiB, GiB, TiB, or unlimited."
  }
}

output "user_data" {
  description = "cloud-init document."
  value = templatefile("${path.module}/user-data.yaml.tftpl", {
    binary_url    = var.binary_url
    binary_sha256 = var.binary_sha256
    data_dir      = var.data_dir
    journal_max   = var.journal_max
  })
}
