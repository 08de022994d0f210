// Names with braces, as shells have them.
//
//   expand_braces("train-{08..11}.tar")   // train-08.tar train-09.tar train-10.tar train-11.tar
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bedplate::data {

// "a{1..3}" → a1 a2 a3; "{08..11}" keeps its zeros; "{x,y}" lists; several multiply. A "\{" is a
// brace. Error{kInvalid} for what has no end, runs backwards or makes more than ten million names.
std::vector<std::string> expand_braces(std::string_view pattern);

}  // namespace bedplate::data
