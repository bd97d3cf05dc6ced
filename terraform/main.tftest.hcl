variables {
  binary_url = "https://downloads.example/weir"
}

run "a_directory_of_its_own_is_taken_as_it_is" {
  command = plan
  variables {
    data_dir      = "/mnt/disk-1/weir.data"
    binary_sha256 = "ef2d127de37b942baad06145e54b0c619a1f22327b2ebbcfbec78f5564afe39d"
  }
  assert {
    condition     = length(regexall("--data-dir /mnt/disk-1/weir.data --listen ", output.user_data)) == 1
    error_message = "the service has another directory"
  }
  assert {
    condition     = can(yamldecode(output.user_data).runcmd[6]) && strcontains(yamldecode(output.user_data).runcmd[6], "sha256sum --check")
    error_message = "the binary is compared before it is installed"
  }
}

run "without_a_checksum_nothing_is_compared" {
  command = plan
  assert {
    condition     = !strcontains(output.user_data, "sha256sum") && length(yamldecode(output.user_data).runcmd) == 10
    error_message = "there is nothing to compare with"
  }
}

run "a_space_would_end_the_directory_in_the_unit" {
  command = plan
  variables {
    data_dir = "/mnt/my data"
  }
  expect_failures = [var.data_dir]
}

run "a_percent_sign_means_something_to_systemd" {
  command = plan
  variables {
    data_dir = "/mnt/%h"
  }
  expect_failures = [var.data_dir]
}

run "a_directory_of_the_system_is_not_given_away" {
  command = plan
  variables {
    data_dir = "/var/lib"
  }
  expect_failures = [var.data_dir]
}

run "a_way_up_leads_nowhere" {
  command = plan
  variables {
    data_dir = "/mnt/../etc"
  }
  expect_failures = [var.data_dir]
}

run "a_home_is_not_seen_by_the_service" {
  command = plan
  variables {
    data_dir = "/home/weir"
  }
  expect_failures = [var.data_dir]
}

run "a_quote_would_end_the_url_in_the_shell" {
  command = plan
  variables {
    binary_url = "https://downloads.example/it's"
  }
  expect_failures = [var.binary_url]
}

run "what_anybody_on_the_way_can_change_is_not_downloaded" {
  command = plan
  variables {
    binary_url = "http://downloads.example/weir"
  }
  expect_failures = [var.binary_url]
}

run "a_size_has_a_unit_that_is_known" {
  command = plan
  variables {
    journal_max = "32GB"
  }
  expect_failures = [var.journal_max]
}

run "a_checksum_is_whole" {
  command = plan
  variables {
    binary_sha256 = "ef2d"
  }
  expect_failures = [var.binary_sha256]
}
