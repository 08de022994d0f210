#include "os/cgroup.h"

#include <gmock/gmock.h>

#include "os/test_host.h"

namespace bedplate::os {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CgroupTreeTest : public TestHost {
 protected:
  void group(const fs::path& path) { fs::create_directories(folder_.path() / path); }

  std::string folder_of(const CgroupTree& tree, std::string_view controller,
                        std::string_view pid = "self") {
    const auto found = tree.of_process(host_, pid, controller);
    return found ? found->folder : "(none)";
  }
  std::vector<std::string> chain_of(const CgroupTree& tree, std::string_view controller) {
    std::vector<std::string> folders;
    for (const auto& each : tree.chain(tree.of_process(host_, "self", controller).value())) {
      folders.push_back(each.folder);
    }
    return folders;
  }
};

TEST_F(CgroupTreeTest, EachControllerOfV1HasItsOwnTree) {
  put("proc/self/mountinfo",
      "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
      "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
      "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
      "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n");
  put("proc/self/cgroup", "9:name=systemd:/\n4:memory:/api/552757\n1:cpu:/\n");
  group("sys/fs/cgroup/cpu");
  group("sys/fs/cgroup/systemd");
  group("sys/fs/cgroup/memory/api/552757");
  const CgroupTree tree(host_);
  ASSERT_THAT(tree.hierarchies(), SizeIs(3));
  EXPECT_THAT(tree.hierarchies()[2].controllers, ElementsAre("name=systemd"));
  EXPECT_EQ(folder_of(tree, "cpu"), "/sys/fs/cgroup/cpu");
  EXPECT_EQ(folder_of(tree, "memory"), "/sys/fs/cgroup/memory/api/552757");
  EXPECT_EQ(folder_of(tree, "blkio"), "(none)");
  EXPECT_EQ(folder_of(tree, ""), "(none)");
  EXPECT_TRUE(tree.has("memory"));
  EXPECT_FALSE(tree.has("cpuset"));
  EXPECT_THAT(chain_of(tree, "memory"),
              ElementsAre("/sys/fs/cgroup/memory/api/552757", "/sys/fs/cgroup/memory/api",
                          "/sys/fs/cgroup/memory"));
}

TEST_F(CgroupTreeTest, ControllersMountedTogetherAreOneHierarchy) {
  put("proc/self/mountinfo",
      "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup "
      "rw,cpu,cpuacct\n");
  put("proc/self/cgroup", "4:cpu,cpuacct:/user.slice\n");
  group("sys/fs/cgroup/cpu,cpuacct/user.slice");
  const CgroupTree tree(host_);
  ASSERT_THAT(tree.hierarchies(), SizeIs(1));
  EXPECT_THAT(tree.hierarchies()[0].controllers, ElementsAre("cpu", "cpuacct"));
  EXPECT_EQ(folder_of(tree, "cpuacct"), "/sys/fs/cgroup/cpu,cpuacct/user.slice");
  EXPECT_EQ(folder_of(tree, "cpu"), "/sys/fs/cgroup/cpu,cpuacct/user.slice");
}

TEST_F(CgroupTreeTest, HybridTakesV1ForItsControllersAndV2ForPressure) {
  put("proc/self/mountinfo",
      "32 31 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n"
      "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  put("proc/self/cgroup", "4:memory:/m\n0::/user.slice/session-1.scope\n");
  put("sys/fs/cgroup/unified/cgroup.controllers", "hugetlb\n");
  group("sys/fs/cgroup/unified/user.slice/session-1.scope");
  group("sys/fs/cgroup/memory/m");
  const CgroupTree tree(host_);
  EXPECT_EQ(folder_of(tree, "memory"), "/sys/fs/cgroup/memory/m");
  EXPECT_EQ(folder_of(tree, ""), "/sys/fs/cgroup/unified/user.slice/session-1.scope");
  EXPECT_EQ(folder_of(tree, "hugetlb"), "/sys/fs/cgroup/unified/user.slice/session-1.scope");
  EXPECT_EQ(folder_of(tree, "cpu"), "(none)");
}

TEST_F(CgroupTreeTest, PureV2AnswersForTheOldNames) {
  put("proc/self/mountinfo", "24 1 0:21 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n");
  put("proc/self/cgroup", "0::/system.slice/job.service\n");
  put("proc/77/cgroup", "0::/gone.scope (deleted)\n");
  put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n");
  group("sys/fs/cgroup/system.slice/job.service");
  const CgroupTree tree(host_);
  for (const auto* name : {"", "cpu", "cpuacct", "memory", "io", "blkio"}) {
    EXPECT_EQ(folder_of(tree, name), "/sys/fs/cgroup/system.slice/job.service") << name;
    EXPECT_TRUE(tree.has(name)) << name;
  }
  EXPECT_EQ(folder_of(tree, "freezer"), "(none)");
  EXPECT_EQ(folder_of(tree, "", "77"), "(none)");
  EXPECT_EQ(folder_of(tree, "", "78"), "(none)");
  EXPECT_THAT(chain_of(tree, "cpu"), ElementsAre("/sys/fs/cgroup/system.slice/job.service",
                                                 "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup"));
}

TEST_F(CgroupTreeTest, AContainerSeesItsOwnGroupAsTheMountsRoot) {
  put("proc/self/mountinfo",
      "32 31 0:29 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
      "33 31 0:30 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"
      "34 31 0:31 /docker/abc /sys/fs/cgroup/blk\\040io ro - cgroup cgroup rw,blkio\n"
      "36 31 0:33 /docker/abc /sys/fs/cgroup/pids ro - cgroup cgroup rw,pids\n");
  put("proc/self/cgroup",
      "4:memory:/docker/abc\n3:cpu:/docker/abc/inner\n2:blkio:/docker/abc\n1:pids:/docker/"
      "abcdef\n");
  for (const auto* name : {"memory", "cpu/inner", "blk io", "pids"}) {
    group(fs::path("sys/fs/cgroup") / name);
  }
  const CgroupTree tree(host_);
  EXPECT_EQ(folder_of(tree, "memory"), "/sys/fs/cgroup/memory");
  EXPECT_EQ(folder_of(tree, "cpu"), "/sys/fs/cgroup/cpu/inner");
  EXPECT_EQ(folder_of(tree, "blkio"), "/sys/fs/cgroup/blk io");
  EXPECT_EQ(folder_of(tree, "pids"), "(none)");  // a neighbour's group is not shown in here
  EXPECT_THAT(chain_of(tree, "memory"), ElementsAre("/sys/fs/cgroup/memory"));
  EXPECT_THAT(chain_of(tree, "cpu"), ElementsAre("/sys/fs/cgroup/cpu/inner", "/sys/fs/cgroup/cpu"));
}

TEST_F(CgroupTreeTest, AGroupAboveTheNamespaceHasNoFolderHere) {
  put("proc/self/mountinfo", "24 1 0:21 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  put("proc/self/cgroup", "0::/../neighbour\n");
  group("sys/fs/cgroup/neighbour");
  EXPECT_EQ(folder_of(CgroupTree(host_), ""), "(none)");
}

TEST_F(CgroupTreeTest, AHiddenMountIsNotThere) {
  put("proc/self/mountinfo",
      "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
      "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
      "36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
      "90 36 0:99 / /sys/fs/cgroup/cpu rw - tmpfs tmpfs rw\n"
      "91 23 0:98 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n");
  put("proc/self/cgroup", "4:memory:/\n3:cpu:/\n");
  group("sys/fs/cgroup/cpu");  // exists, but another file system is mounted on it
  EXPECT_THAT(CgroupTree(host_).hierarchies(), IsEmpty());
}

TEST_F(CgroupTreeTest, OfTwoMountsOfAHierarchyTheWholeOneIsTaken) {
  put("proc/self/mountinfo",
      "35 31 0:32 /pod /var/lib/pod/cgroup rw - cgroup cgroup rw,memory\n"
      "36 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  put("proc/self/cgroup", "4:memory:/\n");
  group("var/lib/pod/cgroup");
  group("sys/fs/cgroup/memory");
  EXPECT_EQ(folder_of(CgroupTree(host_), "memory"), "/sys/fs/cgroup/memory");
}

TEST_F(CgroupTreeTest, ARecordedMachineMayHaveOnlyMounts) {
  put("proc/mounts",
      "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\nproc /proc proc rw 0 0\nnonsense\n");
  put("proc/self/cgroup", "0::/a\n");
  group("sys/fs/cgroup/a");
  EXPECT_EQ(folder_of(CgroupTree(host_), ""), "/sys/fs/cgroup/a");
}

TEST_F(CgroupTreeTest, AMachineWithoutCgroupsHasNone) {
  const CgroupTree tree(host_);
  EXPECT_THAT(tree.hierarchies(), IsEmpty());
  EXPECT_FALSE(tree.has(""));
  EXPECT_EQ(folder_of(tree, "cpu"), "(none)");
}

TEST_F(CgroupTreeTest, NoGroupIsMadeOnARecordedMachine) {
  put("proc/self/mountinfo",
      "24 1 0:21 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
      "25 1 0:22 / /sys/fs/cgroup/ca rw - cgroup cgroup rw,cpu,cpuacct\n");
  put("proc/self/cgroup", "1:cpu,cpuacct:/\n0::/\n");
  group("sys/fs/cgroup/unified");
  group("sys/fs/cgroup/ca");
  const CgroupTree tree(host_);
  const JobCgroup job(host_, tree, "bedplate.run.1.1");
  EXPECT_EQ(job.members(), std::nullopt);
  EXPECT_EQ(job.group(""), std::nullopt);
  ASSERT_THAT(job.refused(), SizeIs(2));
  EXPECT_EQ(job.refused()[0].hierarchy, "cpu,cpuacct (v1)");
  EXPECT_THAT(job.refused()[0].why, ::testing::HasSubstr("share"));
  EXPECT_EQ(job.refused()[1].hierarchy, "unified (v2)");
  EXPECT_THAT(host_.list("/sys/fs/cgroup/unified"), IsEmpty());
}

}  // namespace
}  // namespace bedplate::os
