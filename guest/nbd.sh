# The kernel's NBD client on two disks of `rampack keep serve --transport nbd`, by netlink. The daemon is
# killed (SIGKILL) over and over, and the client gets new connections. fio writes to one disk and
# checks what it reads; a program in a control group swaps to the other.
#
#   nbd [KILLS [CONNECTIONS]]
#
# The last line is `RESULT kind=nbd …`. The status is 0 if no byte was wrong, no request failed and no
# program was hurt.
. ./lib.sh

kills=${1:-10}
connections=${2:-2}
export RAMPACK_ROOT=/run/rampack

# each COMMAND: gives each device its connections.
each() {
  local disk
  for disk in 0 1; do
    timeout 120 nbdlink "$1" $RAMPACK_ROOT/nbd.sock zram$disk $disk "$connections" || return 1
  done
}

before=
modprobe nbd nbds_max=2 || exit 1
rampack keep serve --transport nbd --num-devices 2 --size 64M --lock-memory > $daemon_log 2>&1 &
keeper=$!
answers || exit 1
cat $daemon_log
each connect || exit 1
say "sizes $(cat /sys/block/nbd[01]/size | tr '\n' ' '), $connections connections each"
check_with_fio /dev/nbd0 &
writer=$!
swap_to /dev/nbd1
for ((count = 1; count <= kills; count++)); do
  pause 2000
  before=$(daemon_of_keeper)
  kill -9 "$before"
  answers || break
  each again || fail "no new connections"
done
say "$kills daemons were killed"
checked_by $writer
swapped_to /dev/nbd1
for disk in 0 1; do
  nbdlink end $disk || fail "/dev/nbd$disk does not end"
done
timeout 60 rampack stop || fail "the daemon does not stop"
wait $keeper || fail "the keeper ended with $?"
tail -n 5 $daemon_log
dmesg | grep 'I/O error' && fail "a request failed"
kernel_notes
dmesg | grep -E 'WARN|BUG|Oops' && fail "the kernel complained"
echo "RESULT kind=nbd kills=$kills verified=$verified swapped=$swapped failures=$failures" \
  "rc=$((failures > 0))"
exit $((failures > 0))
