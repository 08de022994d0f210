// Names that stand for several, as shells have them.
//
//   expand_braces("train-{08..11}.tar")   // train-08.tar train-09.tar train-10.tar train-11.tar
//   expand_names("~/wds/*.tar")           // the files that are there
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bedplate::data {

// "a{1..3}" → a1 a2 a3; "{08..11}" keeps its zeros; "{x,y}" lists; several multiply. A "\{" is a
// brace. Error{kInvalid} for what has no end, runs backwards or makes more than ten million names.
std::vector<std::string> expand_braces(std::string_view pattern);

// The pattern that names just this.
std::string escape_braces(std::string_view name);

// As expand_braces(); then, of paths of this machine, a leading "~/" is the home folder, and "*",
// "?" and
// "[…]" name what is there, in the order of the names' bytes, folders with a slash at their end. A
// name that is there as it stands is taken as it stands. URLs of stores have braces only.
// Error{kNotFound} when nothing matches.
std::vector<std::string> expand_names(std::string_view pattern);

}  // namespace bedplate::data
