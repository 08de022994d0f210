// Many objects of one store looked up at once.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "store/store.h"

namespace bedplate::data {

// What the store has under each key, in their order. Many keys are looked up by one listing, where
// the store has one, others by up to `threads` questions at a time. Errors are those of the store.
std::vector<std::optional<store::ObjectInfo>> look_up(store::Store& store,
                                                      std::span<const std::string> keys,
                                                      int threads, Deadline deadline);

}  // namespace bedplate::data
