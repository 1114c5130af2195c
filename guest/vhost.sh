#!/bin/bash
# A disk that a daemon on the host serves by vhost-user (`cargo xtask guest --served SECONDS`), which is
# killed every so many seconds.
#
#   vhost check              a file system with fio's verifier, then swap at twice the memory: no error
#   vhost compare [ROUNDS]   4 KiB requests beside a raw file of qemu's, and NBD
. ./lib.sh

raw=/dev/vdd
errors=0

must() {
  "$@" > /tmp/out 2>&1 || {
    say "FAILED: $* ($?): $(tail -n 3 /tmp/out)"
    errors=$((errors + 1))
  }
}

# The disks in the order of their slots.
vhost=/dev/vde nbd=/dev/vdf

check() {
  say "$vhost: $(cat /sys/block/"${vhost##*/}"/queue/{nr_hw_queues,logical_block_size,physical_block_size,discard_max_bytes,write_zeroes_max_bytes,write_cache} 2> /dev/null | tr '\n' ' ')" \
    "serial $(cat /sys/block/"${vhost##*/}"/serial)"
  must mke2fs -q -t ext4 -F $vhost
  must mkdir -p /mnt/disk
  must mount -o discard $vhost /mnt/disk
  say "fio verifies"
  must fio --name=verify --directory=/mnt/disk --size=64M --numjobs=2 --rw=randwrite \
    --bsrange=4k-64k --direct=1 --ioengine=libaio --iodepth=16 --loops=3 --verify=crc32c \
    --verify_fatal=1 --verify_backlog=256 --refill_buffers
  must rm -r /mnt/disk/verify*
  must umount /mnt/disk
  must mount $vhost /mnt/disk
  must umount /mnt/disk
  say "swap"
  must mkswap $vhost
  must swapon -d $vhost
  hungry hog --mib 1000 --passes 2 --seconds 240 --seed 1 --name hog --random || {
    say "FAILED: the hog ended with $?"
    errors=$((errors + 1))
  }
  say "swapped out $(vmstat pswpout) pages, in $(vmstat pswpin)"
  must swapoff $vhost
  must blkdiscard $vhost
  local told
  told=$(dmesg | grep -ciE 'I/O error|blk_update_request|Buffer I/O|EXT4-fs error')
  [ "$told" -eq 0 ] || dmesg | grep -iE 'error' | head -n 5
  errors=$((errors + told))
}

# kiops DEVICE PATTERN DEPTH: thousands of requests a second.
kiops() {
  fio --name=x --filename="$1" --rw="$2" --iodepth="$3" --bs=4k --size=128M --direct=1 \
    --ioengine=libaio --runtime=5 --time_based --minimal --randrepeat=0 \
    --buffer_compress_percentage=60 2> /dev/null |
    awk -F';' -v rw="$2" '{ printf "%.2f", (rw ~ /read/ ? $8 : $49) / 1000 }'
}

compare() {
  local device pattern depth line
  for device in $raw $vhost $nbd; do
    must fio --name=fill --filename="$device" --rw=write --bs=256k --size=128M --direct=1 \
      --ioengine=psync --buffer_compress_percentage=60 --refill_buffers
  done
  for round in $(seq "${1:-2}"); do
    for pattern in randread randwrite; do
      for depth in 1 16; do
        line="COMPARE round=$round $pattern depth=$depth"
        for device in raw=$raw vhost=$vhost nbd=$nbd; do
          line="$line ${device%%=*}=$(kiops "${device#*=}" $pattern $depth)"
        done
        echo "$line"
      done
    done
  done
}

"${@:-check}"
echo "RESULT kind=vhost errors=$errors"
[ $errors -eq 0 ]
