#include "os/cgroup.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace bedplate::os {
namespace {

// The octal escapes of /proc/*/mountinfo: \040 for a space.
std::string unescape(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      if (const auto code = to_int(text.substr(i + 1, 3), 8)) {
        plain += static_cast<char>(*code);
        i += 3;
        continue;
      }
    }
    plain += text[i];
  }
  return plain;
}

struct Mount {
  std::string point;
  std::string root;
  std::string type;
  std::string options;  // of the file system, not of the mount
};

// "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - tmpfs tmpfs rw,mode=755"
std::optional<Mount> parse_mountinfo(std::string_view line) {
  const auto dash = line.find(" - ");
  if (dash == std::string_view::npos) return std::nullopt;
  const auto front = words(line.substr(0, dash));
  const auto back = words(line.substr(dash + 3));
  if (front.size() < 6 || back.size() < 3) return std::nullopt;
  return Mount{unescape(front[4]), unescape(front[3]), std::string(back[0]), std::string(back[2])};
}

// "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0": knows nothing of roots.
std::optional<Mount> parse_mounts(std::string_view line) {
  const auto fields = words(line);
  if (fields.size() < 4) return std::nullopt;
  return Mount{unescape(fields[1]), "/", std::string(fields[2]), std::string(fields[3])};
}

std::vector<Mount> read_mounts(const HostRoot& host) {
  const auto mountinfo = host.read("/proc/self/mountinfo");
  const bool has_roots = mountinfo.has_value();
  const std::string text = has_roots ? *mountinfo : host.read("/proc/mounts").value_or("");
  std::vector<Mount> mounts;
  for (const auto line : split(text, '\n')) {
    auto mount = has_roots ? parse_mountinfo(line) : parse_mounts(line);
    if (!mount) continue;
    // A later mount on the same folder hides the earlier one.
    std::erase_if(mounts, [&](const Mount& earlier) { return earlier.point == mount->point; });
    mounts.push_back(std::move(*mount));
  }
  return mounts;
}

// The controllers of a v1 mount stand among its options.
std::vector<std::string> v1_controllers(std::string_view options) {
  static constexpr std::string_view kNotControllers[] = {
      "rw",     "ro",           "relatime",       "noatime",       "nosuid",         "nodev",
      "noexec", "none",         "noprefix",       "seclabel",      "clone_children", "xattr",
      "all",    "favordynmods", "nofavordynmods", "cpuset_v2_mode"};
  std::vector<std::string> controllers;
  for (const auto word : split(options, ',')) {
    const bool named = word.starts_with("name=");
    if (!named && word.find('=') != std::string_view::npos) continue;
    if (std::ranges::find(kNotControllers, word) != std::end(kNotControllers)) continue;
    if (!word.empty()) controllers.emplace_back(word);
  }
  return controllers;
}

// v2 renamed blkio to io, and gives cpuacct's figures in cpu.stat of every group.
std::string_view v2_name(std::string_view v1) { return v1 == "blkio" ? "io" : v1; }

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Below `root`: "" for root itself, "/a/b" for a group under it, nullopt for one outside.
std::optional<std::string> below(std::string_view path, std::string_view root) {
  // A group above the reader's cgroup namespace shows as "/../x": its folder has no name here.
  for (const auto part : split(path, '/')) {
    if (part == "..") return std::nullopt;
  }
  if (root == "/") return path == "/" ? std::string() : std::string(path);
  if (path == root) return std::string();
  if (path.starts_with(std::string(root) + "/")) return std::string(path.substr(root.size()));
  return std::nullopt;
}

}  // namespace

CgroupTree::CgroupTree(const HostRoot& host) {
  for (const auto& mount : read_mounts(host)) {
    const bool unified = mount.type == "cgroup2";
    if (!unified && mount.type != "cgroup") continue;
    if (!host.exists(mount.point)) continue;  // something else is mounted over a parent folder
    CgroupHierarchy hierarchy{unified, {}, mount.point, mount.root};
    if (unified) {
      const auto names = host.read(mount.point + "/cgroup.controllers").value_or("");
      for (const auto name : words(names)) hierarchy.controllers.emplace_back(name);
    } else {
      hierarchy.controllers = v1_controllers(mount.options);
    }
    // The same hierarchy may be mounted again elsewhere; the mount that shows the most is kept.
    const auto same = std::ranges::find_if(hierarchies_, [&](const CgroupHierarchy& other) {
      return other.unified == unified && (unified || other.controllers == hierarchy.controllers);
    });
    if (same == hierarchies_.end()) {
      hierarchies_.push_back(std::move(hierarchy));
    } else if (same->mount_root != "/" && hierarchy.mount_root == "/") {
      *same = std::move(hierarchy);
    }
  }
}

bool CgroupTree::has(std::string_view controller) const {
  return std::ranges::any_of(hierarchies_, [&](const CgroupHierarchy& hierarchy) {
    if (!hierarchy.unified) return contains(hierarchy.controllers, controller);
    return controller.empty() || controller == "cpuacct" ||
           contains(hierarchy.controllers, v2_name(controller));
  });
}

std::optional<Cgroup> CgroupTree::of_process(const HostRoot& host, std::string_view pid,
                                             std::string_view controller) const {
  const CgroupHierarchy* wanted = nullptr;
  for (const auto& hierarchy : hierarchies_) {
    if (!hierarchy.unified && contains(hierarchy.controllers, controller)) wanted = &hierarchy;
  }
  for (const auto& hierarchy : hierarchies_) {
    if (wanted || !hierarchy.unified) continue;
    if (controller.empty() || controller == "cpuacct" ||
        contains(hierarchy.controllers, v2_name(controller))) {
      wanted = &hierarchy;
    }
  }
  if (!wanted) return std::nullopt;

  // "4:memory:/a/b" for v1, "0::/a/b" for v2.
  const auto text = host.read(fmt::format("/proc/{}/cgroup", pid)).value_or("");
  for (const auto line : split(text, '\n')) {
    const auto first = line.find(':');
    const auto second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const auto names = line.substr(first + 1, second - first - 1);
    if (names.empty() != wanted->unified) continue;
    if (!wanted->unified) {
      const auto list = split(names, ',');
      if (std::ranges::find(list, controller) == list.end()) continue;
    }
    const auto inside = below(line.substr(second + 1), wanted->mount_root);
    if (!inside) return std::nullopt;
    const Cgroup group{wanted->unified, wanted->mount + *inside};
    if (!host.exists(group.folder)) return std::nullopt;  // "… (deleted)"
    return group;
  }
  return std::nullopt;
}

std::vector<Cgroup> CgroupTree::chain(const Cgroup& group) const {
  std::string_view mount;
  for (const auto& hierarchy : hierarchies_) {
    const bool under =
        group.folder == hierarchy.mount || group.folder.starts_with(hierarchy.mount + "/");
    // In a hybrid layout the v2 mount may lie below a v1 mount or the other way round.
    if (under && hierarchy.unified == group.unified && hierarchy.mount.size() > mount.size()) {
      mount = hierarchy.mount;
    }
  }
  std::vector<Cgroup> groups{group};
  while (!mount.empty() && groups.back().folder.size() > mount.size()) {
    const auto& folder = groups.back().folder;
    groups.push_back({group.unified, folder.substr(0, folder.rfind('/'))});
  }
  return groups;
}

}  // namespace bedplate::os
