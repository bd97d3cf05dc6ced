# Renders the cloud-init user data of a host that runs `weir dev` as a service. Provider-neutral: pass `user_data` to
# whatever makes the machine. One host; clusters are not built yet.
terraform {
  required_version = ">= 1.5"
}

variable "binary_url" {
  description = "Where the host downloads the weir binary from."
  type        = string
}

variable "data_dir" {
  description = "Directory of the data, on the disk that shall keep it; below neither /home nor /root. Made if missing, and given to the user weir."
  type        = string
  default     = "/var/lib/weir"
}

variable "journal_max" {
  description = "Size at which publishes are refused until retention has freed some."
  type        = string
  default     = "32GiB"
}

output "user_data" {
  description = "cloud-init document."
  value = templatefile("${path.module}/user-data.yaml.tftpl", {
    binary_url  = var.binary_url
    data_dir    = var.data_dir
    journal_max = var.journal_max
  })
}
