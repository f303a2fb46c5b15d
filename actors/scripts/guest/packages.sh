
# Installs packages with the guest's package manager. Arguments: the packages.
need_root
find_manager
refresh || die "$manager could not refresh its list of packages"
install "$@" || die "$manager could not install $*"
