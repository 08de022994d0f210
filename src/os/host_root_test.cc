#include "os/host_root.h"

#include <gmock/gmock.h>

#include "os/test_host.h"

namespace bedplate::os {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class HostRootTest : public TestHost {};

TEST_F(HostRootTest, AbsentIsNulloptNotZeroAndNotAnError) {
  put("sys/x/value", "0\n");
  put("sys/x/words", "max 100000\n");
  EXPECT_EQ(host_.read_int("/sys/x/value"), 0);
  EXPECT_EQ(host_.read_int("/sys/x/nothing"), std::nullopt);
  EXPECT_EQ(host_.read_int("/sys/x/words"), std::nullopt);
  EXPECT_EQ(host_.read_line("/sys/x/words"), "max 100000");
  EXPECT_EQ(host_.read("/sys/x"), std::nullopt);  // a folder
  EXPECT_THAT(host_.list("/sys/none"), IsEmpty());
}

TEST_F(HostRootTest, AbsoluteLinksOfARecordedMachineStayInsideIt) {
  put("sys/devices/pci0000:00/nic/speed", "100000\n");
  fs::create_directories(folder_.path() / "sys/class/net");
  fs::create_symlink("/sys/devices/pci0000:00/nic", folder_.path() / "sys/class/net/eth0");
  fs::create_symlink("../../devices/pci0000:00/nic", folder_.path() / "sys/class/net/eth1");
  EXPECT_EQ(host_.read_int("/sys/class/net/eth0/speed"), 100000);
  EXPECT_EQ(host_.read_int("/sys/class/net/eth1/speed"), 100000);
  EXPECT_EQ(host_.link_name("/sys/class/net/eth0"), "nic");
  EXPECT_THAT(host_.list("/sys/class/net"), ElementsAre("eth0", "eth1"));
}

TEST_F(HostRootTest, NoPathLeavesARecordedMachine) {
  fs::create_directories(folder_.path() / "proc");
  fs::create_symlink("/etc/passwd", folder_.path() / "proc/escape");
  fs::create_symlink("loop", folder_.path() / "proc/loop");
  EXPECT_EQ(host_.read("/proc/escape"), std::nullopt);
  EXPECT_EQ(host_.read("/../../../etc/passwd"), std::nullopt);
  EXPECT_EQ(host_.read("/proc/loop"), std::nullopt);
}

TEST(Reread, GrowsItsBufferAndReadsFromTheStart) {
  const HostRoot live;
  const UniqueFd fd = live.open(
      "/proc/kallsyms");  // far more than one buffer, in records that do not fill it evenly
  std::string buffer;
  const auto first = std::string(reread(fd.get(), buffer).value());
  EXPECT_GT(first.size(), 100'000u);
  EXPECT_EQ(first, live.read("/proc/kallsyms"));
  EXPECT_EQ(reread(fd.get(), buffer), first);
  EXPECT_EQ(reread(-1, buffer), std::nullopt);
}

}  // namespace
}  // namespace bedplate::os
