// State that no child takes over.
//
//   static PerProcess<Connections> connections;
//   connections.get().take();       // after fork(): the child's own, fresh
//
// Thread-safe as far as get() goes.
#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>

namespace bedplate::os {

// A value of each process: after fork() the child gets a fresh T. What it inherits is neither used
// nor destroyed, since a thread of the parent may have held a lock in it.
template <typename T>
class PerProcess {
 public:
  PerProcess() = default;
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;
  ~PerProcess() {
    const Node* node = node_.load();
    if (node != nullptr && node->pid == ::getpid()) delete node;
  }

  T& get() {
    const pid_t pid = ::getpid();
    Node* node = node_.load(std::memory_order_acquire);
    if (node != nullptr && node->pid == pid) return node->value;
    auto fresh = std::make_unique<Node>();
    fresh->pid = pid;
    do {
      if (node != nullptr && node->pid == pid) return node->value;
      fresh->inherited = node;
    } while (!node_.compare_exchange_weak(node, fresh.get()));
    return fresh.release()->value;
  }

 private:
  struct Node {
    pid_t pid = 0;
    T value = {};
    Node* inherited = nullptr;  // so that leak checkers see that it is meant to stay
  };
  std::atomic<Node*> node_{nullptr};
};

}  // namespace bedplate::os
