#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "host/internal/describers.h"
#include "host/internal/file_system_size.h"
#include "host/internal/read.h"

namespace bedplate::host {
namespace {

constexpr std::size_t kMostMounts = 256;

constexpr std::string_view kLocal[] = {"ext2",  "ext3",     "ext4",     "xfs",    "btrfs",
                                       "f2fs",  "zfs",      "bcachefs", "vfat",   "exfat",
                                       "ntfs3", "squashfs", "erofs",    "iso9660"};
constexpr std::string_view kNetwork[] = {"nfs",  "nfs4",     "cifs",   "smb3",   "lustre",
                                         "ceph", "gpfs",     "beegfs", "wekafs", "9p",
                                         "afs",  "orangefs", "pvfs2"};

template <std::size_t N>
bool among(std::string_view type, const std::string_view (&types)[N]) {
  return std::find(std::begin(types), std::end(types), type) != std::end(types);
}

bool has(const std::vector<std::string>& options, std::string_view option) {
  return std::find(options.begin(), options.end(), option) != options.end();
}

bool under(std::string_view point, std::string_view folder) {
  return point.starts_with(folder) &&
         (point.size() == folder.size() || point[folder.size()] == '/');
}

// "" for what holds no files of interest.
std::string kind_of(std::string_view type, std::string_view point, std::string_view source) {
  if (point == "/dev/shm") return type == "tmpfs" ? "memory" : "local";
  for (const auto* folder : {"/proc", "/sys", "/dev", "/run", "/etc", "/boot", "/snap",
                             "/var/lib/docker", "/var/lib/containers", "/var/lib/kubelet"}) {
    if (under(point, folder)) return {};
  }
  if (among(type, kNetwork)) return "network";
  if (type == "fuse" || type == "fuseblk" || type.starts_with("fuse.") || type == "virtiofs")
    return "fuse";
  if (type == "overlay" || type == "aufs") return "overlay";
  if (type == "tmpfs" || type == "ramfs") return "memory";
  if (among(type, kLocal) || source.starts_with("/dev/")) return "local";
  return {};
}

// The kernel writes space, tab, newline and backslash as \040 and so on.
std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto code =
        text[i] == '\\' && i + 3 < text.size() ? to_int(text.substr(i + 1, 3), 8) : std::nullopt;
    if (code && *code >= 0 && *code < 256) {
      out += static_cast<char>(*code);
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Of "user:secret@server" and "scheme://user:secret@server" the secret is masked.
std::string mask_source(std::string source) {
  const auto at = source.find('@');
  if (at == std::string::npos) return source;
  const auto scheme = source.find("://");
  const auto start = scheme == std::string::npos || scheme > at ? 0 : scheme + 3;
  const auto colon = source.find(':', start);
  if (colon == std::string::npos || colon > at) return source;
  return source.substr(0, colon + 1) + "***" + source.substr(at);
}

void add_options(std::string_view list, std::vector<std::string>& options) {
  constexpr std::size_t kMost = 64;
  for (const auto option : split(list.substr(0, 16 << 10), ',')) {
    const auto key = option.substr(0, option.find('='));
    if (key.empty() || key == "lowerdir" || key == "upperdir" || key == "workdir") continue;
    std::string kept = tidy(option);
    for (const auto* secret : {"pass", "secret", "token", "cred", "key"}) {
      if (key.find(secret) != std::string_view::npos && key.size() != option.size()) {
        kept = tidy(key) + "=***";
      }
    }
    if (key == "rw" && has(options, "ro")) continue;  // a read-only mount of a writable file system
    if (options.size() < kMost && !has(options, kept)) {
      options.push_back(std::move(kept));
    }
  }
}

// Which of the disks a mount lies on: by its device number, else by its source's name.
std::string disk_beneath(const os::HostRoot& root, const Host& host, std::string_view number,
                         std::string_view source) {
  const auto known = [&](std::string_view name) {
    return std::any_of(host.disks.begin(), host.disks.end(),
                       [&](const Disk& d) { return d.name == name; });
  };
  const auto path = root.link(fmt::format("/sys/dev/block/{}", number)).value_or("");
  const auto parts = split(path, '/');
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    if (parts[i] == "block" && known(parts[i + 1])) return std::string(parts[i + 1]);
  }
  if (!source.starts_with("/dev/")) return {};
  const auto name = source.substr(source.rfind('/') + 1);
  std::string best;
  for (const auto& disk : host.disks) {
    const bool mapped = disk.kind == "device-mapper" && disk.model == name;
    if (mapped || (name.starts_with(disk.name) && disk.name.size() > best.size())) best = disk.name;
  }
  return best;
}

// A line of /proc/self/mountinfo; see proc(5).
std::optional<Mount> parse(const os::HostRoot& root, const Host& host, std::string_view line) {
  const auto parts = words(line);
  const auto dash = std::find(parts.begin(), parts.end(), "-");
  if (parts.size() < 10 || dash - parts.begin() < 6 || parts.end() - dash < 4) return std::nullopt;
  Mount mount{.point = tidy(unescape(parts[4])), .type = tidy(dash[1])};
  if (!mount.point.starts_with('/')) return std::nullopt;
  mount.source = mask_source(tidy(unescape(dash[2])));
  mount.kind = kind_of(mount.type, mount.point, mount.source);
  add_options(parts[5], mount.options);
  add_options(dash[3], mount.options);
  if (mount.kind == "local") mount.disk = disk_beneath(root, host, parts[2], mount.source);
  return mount;
}

void put(Mount& mount, const FileSystemSize& size) {
  mount.bytes = size.bytes;
  mount.available_bytes = size.available_bytes;
  mount.inodes = size.inodes;
  mount.available_inodes = size.available_inodes;
}

void ask_live(const DescribeOptions& options, Host& host) {
  std::vector<Mount*> slow;
  std::vector<std::string> points;
  for (auto& mount : host.mounts) {
    if (mount.kind == "local" || mount.kind == "memory") {
      const auto answer = size_of(mount.point);
      if (answer.size)
        put(mount, *answer.size);
      else
        host.unseen.push_back({"size of " + mount.point, answer.why});
    } else {
      slow.push_back(&mount);
      points.push_back(mount.point);
    }
  }
  const auto answers = sizes_with_deadline(points, options.mount_deadline);
  for (std::size_t i = 0; i < slow.size(); ++i) {
    if (answers[i].size)
      put(*slow[i], *answers[i].size);
    else
      host.unseen.push_back({"size of " + slow[i]->point, answers[i].why});
  }
}

// A recorded machine brings `df -B1 --output=target,size,avail,itotal,iavail` as tools/df.txt.
void ask_recorded(const os::HostRoot& root, Host& host) {
  const std::string text = root.read("/tools/df.txt").value_or("");
  std::map<std::string, FileSystemSize> sizes;
  std::string_view rest = text;
  next_line(rest);  // the heading
  while (const auto line = next_line(rest)) {
    const auto columns = words(line->substr(0, 4096));
    if (columns.size() < 5) continue;
    const auto column = [&](std::size_t from_end) {
      return to_amount(columns[columns.size() - from_end]);
    };
    const auto target_end = columns[columns.size() - 4].data() - line->data();
    FileSystemSize size{.bytes = column(4), .available_bytes = column(3)};
    if (column(2).value_or(0) > 0) size.inodes = column(2), size.available_inodes = column(1);
    sizes[tidy(line->substr(0, static_cast<std::size_t>(target_end)))] = size;
  }
  for (auto& mount : host.mounts) {
    if (const auto it = sizes.find(mount.point); it != sizes.end()) put(mount, it->second);
  }
}

// A tmpfs says its size among its options, which helps where nobody ran df.
void read_size_option(Mount& mount) {
  for (const auto& option : mount.options) {
    if (!option.starts_with("size=") || option.size() < 6) continue;
    std::string_view value = std::string_view(option).substr(5);
    const char unit = value.back();
    const std::int64_t factor = unit == 'k' ? kKiB : unit == 'm' ? kMiB : unit == 'g' ? kGiB : 1;
    if (factor != 1) value.remove_suffix(1);
    mount.bytes = times(to_amount(value), factor);
  }
}

}  // namespace

void describe_mounts(const os::HostRoot& root, const DescribeOptions& options, Host& host) {
  const std::string text = root.read("/proc/self/mountinfo").value_or("");
  std::map<std::string, Mount> by_point;  // a later mount hides an earlier one
  std::string_view rest = text;
  while (const auto line = next_line(rest)) {
    if (line->size() > 64 << 10) continue;
    auto mount = parse(root, host, *line);
    if (!mount) continue;
    by_point.erase(mount->point);
    const bool sealed = mount->kind == "memory" && has(mount->options, "ro");  // holds no work
    if (!mount->kind.empty() && !sealed && by_point.size() < kMostMounts) {
      by_point.emplace(mount->point, std::move(*mount));
    }
  }
  for (auto& [point, mount] : by_point) host.mounts.push_back(std::move(mount));
  if (root.live())
    ask_live(options, host);
  else
    ask_recorded(root, host);
  for (auto& mount : host.mounts) {
    if (mount.kind == "memory" && !mount.bytes) read_size_option(mount);
  }
}

}  // namespace bedplate::host
