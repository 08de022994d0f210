# The BPF objects: one a signal, built by clang for the kernel's machine, their bytes inside the library. They are small C
# files against a few structures of our own, relocated when they are loaded: no kernel headers, no bpftool.
set(bpf_objects "")
foreach(name sched block reclaim dirty journal tcp exit fuse)
  set(object bpf/${name}.bpf.o)
  add_custom_command(
    OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${object}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/bpf
    # -g makes the BTF that relocation needs.
    COMMAND ${BPF_CLANG} -target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Wno-unused-parameter
            $<$<BOOL:${BEDPLATE_WERROR}>:-Werror>
            -isystem /usr/include/${CMAKE_LIBRARY_ARCHITECTURE} -c ${CMAKE_CURRENT_SOURCE_DIR}/bpf/${name}.bpf.c
            -o ${CMAKE_CURRENT_BINARY_DIR}/${object}
    DEPENDS bpf/${name}.bpf.c bpf/kernel.bpf.h bpf/shared.h
    COMMENT "Building BPF object ${name}"
    VERBATIM COMMAND_EXPAND_LISTS)
  list(APPEND bpf_objects ${name}.bpf.o)
endforeach()
bedplate_embed(bedplate_probe bpf_objects ${CMAKE_CURRENT_BINARY_DIR}/bpf ${bpf_objects})

target_sources(bedplate_probe PRIVATE internal/bpf_signal.cc)
target_link_libraries(bedplate_probe PRIVATE PkgConfig::libbpf)
bedplate_part(probe samplers samplers/bpf_sched.cc kBpfSched)
bedplate_part(probe samplers samplers/bpf_block.cc kBpfBlock)
bedplate_part(probe samplers samplers/bpf_reclaim.cc kBpfReclaim)
bedplate_part(probe samplers samplers/bpf_dirty.cc kBpfDirty)
bedplate_part(probe samplers samplers/bpf_journal.cc kBpfJournal)
bedplate_part(probe samplers samplers/bpf_tcp.cc kBpfTcp)
bedplate_part(probe samplers samplers/bpf_exit.cc kBpfExit)
bedplate_part(probe samplers samplers/bpf_fuse.cc kBpfFuse)
