# A Nomad task that runs its command on a machine of drover's: the lease is taken when the task starts,
# released when it ends or is stopped, and the task's exit status is the command's. Unverified against
# a Nomad server. DROVER_URL and DROVER_TOKEN_FILE may come from the client's environment instead.
job "drover-build" {
  type = "batch"

  parameterized {
    meta_required = ["branch"]
  }

  group "build" {
    reschedule {
      attempts = 0
    }

    task "build" {
      driver       = "raw_exec"
      kill_signal  = "SIGTERM"
      kill_timeout = "30s"

      config {
        command = "/usr/local/bin/drover"
        args    = ["lease", "--labels", "linux", "--ttl", "2h", "--user-data", "${NOMAD_SECRETS_DIR}/build.env", "--", "echo \"building $BRANCH\" && test -n \"$DEPLOY_KEY\""]
      }

      # Goes to the machine as a file, and as variables of the command.
      template {
        destination = "secrets/build.env"
        change_mode = "noop"
        data        = <<EOT
BRANCH={{ env "NOMAD_META_branch" }}
DEPLOY_KEY={{ with nomadVar "nomad/jobs/drover-build" }}{{ .deploy_key }}{{ end }}
EOT
      }

      env {
        DROVER_URL        = "https://drover.example.com"
        DROVER_TOKEN_FILE = "/etc/drover/token"
      }

      restart {
        attempts = 0
      }
    }
  }
}
