// A mapped file that is cut short under its reader.
#include "os/mapped_copy.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "os/test_folder.h"
#include "os/unique_fd.h"

namespace bedplate::os {
namespace {

constexpr std::size_t kPage = 4096;

class MappedCopy : public ::testing::Test {
 protected:
  MappedCopy() : fd_(::open((folder_.path() / "file").c_str(), O_RDWR | O_CREAT, 0600)) {
    EXPECT_EQ(::ftruncate(fd_.get(), 4 * kPage), 0);
    EXPECT_EQ(::pwrite(fd_.get(), "last", 4, 3 * kPage), 4);
    void* const at = ::mmap(nullptr, 4 * kPage, PROT_READ, MAP_SHARED, fd_.get(), 0);
    EXPECT_NE(at, MAP_FAILED);
    mapping_ = static_cast<char*>(at);
  }
  ~MappedCopy() override { ::munmap(mapping_, 4 * kPage); }

  TestFolder folder_;
  UniqueFd fd_;
  char* mapping_ = nullptr;
};

TEST_F(MappedCopy, CopiesWhatIsThere) {
  ASSERT_TRUE(can_copy_mapped());
  char text[4];
  EXPECT_TRUE(copy_mapped(text, mapping_ + 3 * kPage, 4));
  EXPECT_EQ(std::string(text, 4), "last");
}

TEST_F(MappedCopy, SaysSoWhenTheFileWasCutShort) {
  ASSERT_TRUE(can_copy_mapped());
  ASSERT_EQ(::ftruncate(fd_.get(), kPage), 0);
  std::vector<char> into(4 * kPage);
  for (int i = 0; i < 3; ++i) {  // and goes on working
    EXPECT_FALSE(copy_mapped(into.data(), mapping_, 4 * kPage));
    EXPECT_TRUE(copy_mapped(into.data(), mapping_, kPage));
  }
}

TEST_F(MappedCopy, ManyThreadsAtOnce) {
  ASSERT_TRUE(can_copy_mapped());
  ASSERT_EQ(::ftruncate(fd_.get(), 2 * kPage), 0);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      std::vector<char> into(kPage);
      for (std::size_t i = 0; i < 400; ++i)
        EXPECT_EQ(copy_mapped(into.data(), mapping_ + i % 4 * kPage, kPage), i % 4 < 2);
    });
  }
}

TEST_F(MappedCopy, AThreadThatBlocksTheSignalMayNot) {
  std::jthread([&] {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGBUS);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    EXPECT_FALSE(can_copy_mapped());
  }).join();
  EXPECT_TRUE(can_copy_mapped());
}

TEST_F(MappedCopy, WhatIsNoCopyGoesToTheHandlerBefore) {
  const pid_t child = ::fork();
  if (child == 0) {
    can_copy_mapped();
    ::signal(SIGBUS, SIG_DFL);
    if (can_copy_mapped()) ::_exit(1);  // another handler took its place
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);

  const pid_t other = ::fork();
  if (other == 0) {
    ::signal(SIGBUS, SIG_DFL);
    can_copy_mapped();
    static_cast<void>(::ftruncate(fd_.get(), 0));
    const volatile char touched = mapping_[0];
    ::_exit(touched);
  }
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGBUS);
}

}  // namespace
}  // namespace bedplate::os
