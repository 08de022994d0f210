# The BPF programs: one object built by clang for the kernel's machine, its bytes inside the library. Small C files against a
# few structures of our own, relocated when they are loaded: no kernel headers, no bpftool.
set(bpf_sources block dirty exit fuse journal reclaim sched tcp programs)
list(TRANSFORM bpf_sources PREPEND bpf/)
list(TRANSFORM bpf_sources APPEND .bpf.c)
set(bpf_object ${CMAKE_CURRENT_BINARY_DIR}/bpf/programs.bpf.o)
add_custom_command(
  OUTPUT ${bpf_object}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/bpf
  # -g makes the BTF that relocation needs.
  COMMAND ${BPF_CLANG} -target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Wno-unused-parameter $<$<BOOL:${BEDPLATE_WERROR}>:-Werror>
          -isystem /usr/include/${CMAKE_LIBRARY_ARCHITECTURE} -c ${CMAKE_CURRENT_SOURCE_DIR}/bpf/programs.bpf.c
          -o ${bpf_object}
  DEPENDS ${bpf_sources} bpf/kernel.bpf.h bpf/shared.h
  COMMENT "Building the BPF programs"
  VERBATIM COMMAND_EXPAND_LISTS)
bedplate_embed(bedplate_probe bpf_objects ${CMAKE_CURRENT_BINARY_DIR}/bpf programs.bpf.o)

target_sources(bedplate_probe PRIVATE internal/bpf_programs.cc internal/bpf_signal.cc)
target_link_libraries(bedplate_probe PRIVATE PkgConfig::libbpf)
bedplate_part(probe samplers samplers/bpf_sched.cc kBpfSched)
bedplate_part(probe samplers samplers/bpf_block.cc kBpfBlock)
bedplate_part(probe samplers samplers/bpf_reclaim.cc kBpfReclaim)
bedplate_part(probe samplers samplers/bpf_dirty.cc kBpfDirty)
bedplate_part(probe samplers samplers/bpf_journal.cc kBpfJournal)
bedplate_part(probe samplers samplers/bpf_tcp.cc kBpfTcp)
bedplate_part(probe samplers samplers/bpf_exit.cc kBpfExit)
bedplate_part(probe samplers samplers/bpf_fuse.cc kBpfFuse)
