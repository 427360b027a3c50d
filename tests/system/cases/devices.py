"""The device as programs see it: ibv_devices, ibv_devinfo, sysfs.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import re
import shutil

from harness.node import check_reaped, one_node
from harness.process import Skip, check, tail
from harness.runner import Group
from harness.tables import devinfo_gids, devinfo_value

DEVICES = Group('devices', one_node)
SYSFS = '/sys/class/infiniband'


@DEVICES.case
def ibv_devices_lists_one(place):
    output = place.client.run_to_end('ibv_devices')
    rows = re.findall(r'^\s+(\S+)\s+([0-9a-f]{16})$', output, re.MULTILINE)
    check(len(rows) == 1, f'it lists {len(rows)} devices, of 1\n{tail(output)}')
    check(int(rows[0][1], 16) != 0, 'the GUID is zero')


@DEVICES.case
def ibv_devinfo_ids(place):
    output = place.client.run_to_end('ibv_devinfo', '-v')
    for key in ('node_guid', 'sys_image_guid', 'vendor_id', 'vendor_part_id', 'fw_ver'):
        value = devinfo_value(output, key)
        digits = re.sub(r'^0x', '', value).replace(':', '')
        check(digits.strip('0.') != '', f'{key} is zero: {value}')


@DEVICES.case
def ibv_devinfo_port(place):
    output = place.client.run_to_end('ibv_devinfo', '-v')
    check(devinfo_value(output, 'state').startswith('PORT_ACTIVE'), f'the port is not active\n{tail(output)}')
    check(devinfo_value(output, 'link_layer') == 'Ethernet', 'the link layer is not Ethernet')
    for key in ('active_width', 'active_speed'):
        check('invalid' not in devinfo_value(output, key), f'{key} is no legal value')
    check(int(devinfo_value(output, 'active_mtu').split()[0]) in (256, 512, 1024, 2048, 4096), 'no legal MTU')


@DEVICES.case
def ibv_devinfo_limits(place):
    output = place.client.run_to_end('ibv_devinfo', '-v')
    for key in ('max_qp', 'max_qp_wr', 'max_sge', 'max_cq', 'max_cqe', 'max_mr', 'max_pd', 'max_qp_rd_atom'):
        check(int(devinfo_value(output, key)) > 0, f'{key} is 0')
    check(int(devinfo_value(output, 'max_mr_size'), 16) >= 2**31, 'max_mr_size is below 2 GiB')


@DEVICES.case
def ibv_devinfo_gids(place):
    output = place.client.run_to_end('ibv_devinfo', '-v')
    gids = devinfo_gids(output)
    check(gids, f'it lists no GID\n{tail(output)}')
    for index, gid in gids:
        check(gid.strip('0:') != '', f'GID {index} is zero')
    check(len({gid for _, gid in gids}) == len(gids), 'a GID is there twice')


@DEVICES.case
def sysfs_agrees_with_verbs(place):
    gids = devinfo_gids(place.client.run_to_end('ibv_devinfo', '-v'))
    device = place.client.run_to_end('ls', SYSFS).split()
    check(len(device) == 1, f'{SYSFS} has {device}')
    port = f'{SYSFS}/{device[0]}/ports/1'
    for index, gid in gids:
        text = place.client.run_to_end('cat', f'{port}/gids/{index}').strip()
        check(text.replace(':', '') == expand(gid), f'gids/{index} reads {text}, and verbs say {gid}')
        kind = place.client.run_to_end('cat', f'{port}/gid_attrs/types/{index}').strip()
        check(kind == 'RoCE v2', f'gid_attrs/types/{index} reads {kind!r}')


def expand(gid):
    """An IPv6 or mapped IPv4 address as 32 hexadecimal digits."""
    import ipaddress
    return f'{int(ipaddress.IPv6Address(gid)):032x}'


@DEVICES.case
def sysfs_unused_entries(place):
    device = place.client.run_to_end('ls', SYSFS).strip()
    unused = place.client.run_to_end('cat', f'{SYSFS}/{device}/ports/1/gids/100').strip()
    check(unused.replace(':', '').strip('0') == '', f'an unused GID reads {unused}')
    reading = place.client.run('cat', f'{SYSFS}/{device}/ports/1/gid_attrs/types/100')
    check(reading.wait(10) == 1 and 'Invalid argument' in reading.output(),
          f'the type of an unused GID does not read EINVAL: {reading.output().strip()}')


@DEVICES.case
def sysfs_through_the_shell(place):
    """Shell globs, find and stat see the same tree as open()."""
    script = (f'cd {SYSFS} && for d in *; do test -d "$d/ports/1" && cat $d/node_guid && '
              f'test "$(stat -c %t:%T /dev/infiniband/uverbs0)" && find $d/ -maxdepth 1 -name node_type; done')
    output = place.client.run_to_end('sh', '-c', script)
    check('node_type' in output, f'find does not see node_type\n{tail(output)}')


@DEVICES.case
def other_programs_are_as_before(place):
    """What never opens a device behaves as without urdma, its exit status too."""
    check(place.client.run_to_end('cat', '/proc/sys/kernel/ostype') == 'Linux\n', 'cat prints something else')
    check(place.client.run('sh', '-c', 'exit 7').wait(10) == 7, 'the exit status is not passed on')
    listing = place.client.run_to_end('sh', '-c', 'ls /sys/class | wc -l; ls /dev | head -3')
    check(int(listing.split()[0]) > 3, f'/sys/class is not the real one\n{tail(listing)}')
    missing = place.client.run('cat', '/sys/class/infiniband/none/node_guid')
    check(missing.wait(10) == 1 and 'No such file' in missing.output(), 'a missing file is not ENOENT')


@DEVICES.case
def ucx_info(place):
    """Field report 3: UCX, which looks at the device's place among the others, uses it without a complaint."""
    if shutil.which('ucx_info') is None:
        raise Skip('ucx_info is not installed; run scripts/setup')
    output = place.client.run_to_end('ucx_info', '-d', environment={'UCX_LOG_LEVEL': 'warn'})
    name = place.client.run_to_end('ls', SYSFS).strip()
    shown = re.findall(r'Transport: (\S+)\n#\s+Device: (\S+)', output)
    for transport in 'rc_verbs', 'ud_verbs':
        check((transport, f'{name}:1') in shown, f'{transport} of the device is not there; there are {shown}')
    check('Connection manager: rdmacm' in output, 'it does not connect by address')
    complaints = [line for line in output.splitlines()
                  if re.search(r'error|warn|fail|cannot|unable', line, re.IGNORECASE)
                  and 'error handling:' not in line]
    check(not complaints, 'it complains:\n' + '\n'.join(complaints))


@DEVICES.case
def sessions_end_with_their_programs(place):
    check_reaped(place.server)


def groups(_large):
    yield DEVICES
