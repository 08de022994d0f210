#include "cli/program.h"
#include "os/process.h"

int main(int argc, char** argv) {
  bedplate::os::guard_standard_descriptors();
  return bedplate::cli::run_program({argv, argv + argc});
}
