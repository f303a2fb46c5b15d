#!/bin/sh
# What `forgejo-runner one-job` says before 12.8, which knows no options that name its connection
# (`internal/app/cmd/cmd.go` of project-mirrors/forgejo-runner at 0988a0cb1e0b): the words of its library for
# options, its usage, and status 1.
for word; do
    case $word in
    one-job | --config | --config=* | --wait | config.yaml) ;;
    --*)
        echo "Error: unknown flag: ${word%%=*}" >&2
        echo 'Usage:' >&2
        echo '  forgejo-runner one-job [flags]' >&2
        exit 1
        ;;
    esac
done
exit 1
