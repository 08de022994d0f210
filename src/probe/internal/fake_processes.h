// A machine of a few files for tests, on which processes come and go as they are told.
//
//   FakeProcesses machine;
//   machine.put(100, {.comm = "python", .start = 40});
//   JobProcesses job(machine.host(), nullptr, 100, 0);
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "os/host_root.h"
#include "os/test_folder.h"

namespace bedplate::probe {

struct FakeProcess {
  int ppid = 1;
  std::string comm = "python";
  std::string exe = "/usr/bin/python3.11";
  std::string command = std::string("python\0train.py\0", 16);
  std::string environment = {};
  std::string pids_inside = {};  // as in NSpid; empty: its number here
  std::string maps = {};
  long start = 100;  // clock ticks after boot
  char state = 'S';
  long peak_kib = 1;
};

class FakeProcesses {
 public:
  const os::HostRoot& host() const { return host_; }
  const std::filesystem::path& path() const { return folder_.path(); }
  std::filesystem::path folder(int pid) const {
    return folder_.path() / "proc" / std::to_string(pid);
  }

  void put(int pid, const FakeProcess& fake) {
    put_stat(pid, fake);
    std::ofstream(folder(pid) / "comm") << fake.comm << "\n";
    std::ofstream(folder(pid) / "cmdline") << fake.command;
    std::ofstream(folder(pid) / "environ") << fake.environment;
    std::ofstream(folder(pid) / "maps") << fake.maps;
    std::ofstream(folder(pid) / "status")
        << "Name:\t" << fake.comm << "\nNSpid:\t"
        << (fake.pids_inside.empty() ? std::to_string(pid) : fake.pids_inside) << "\nVmHWM:\t"
        << fake.peak_kib << " kB\n";
    std::filesystem::remove(folder(pid) / "exe");
    std::filesystem::create_symlink(fake.exe, folder(pid) / "exe");
  }

  // Of all its files only this one, as of a process that ends between two reads.
  void put_stat(int pid, const FakeProcess& fake) {
    std::filesystem::create_directories(folder(pid));
    std::ofstream(folder(pid) / "stat")
        << pid << " (" << fake.comm << ") " << fake.state << " " << fake.ppid
        << " 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 1 0 " << fake.start << " 0 0 0\n";
  }

  void remove(int pid) { std::filesystem::remove_all(folder(pid)); }

 private:
  os::TestFolder folder_;
  os::HostRoot host_{folder_.path()};
};

}  // namespace bedplate::probe
