// Names in the order people expect: mlx5_2 before mlx5_10.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace bedplate::host {

bool naturally_less(std::string_view a, std::string_view b);

template <class T>
void sort_naturally(std::vector<T>& things, std::string T::*name) {
  std::stable_sort(things.begin(), things.end(),
                   [name](const T& a, const T& b) { return naturally_less(a.*name, b.*name); });
}

}  // namespace bedplate::host
