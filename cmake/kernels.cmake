# Flags of the files that exist once per instruction-set level: on that file only (a template or
# inline function compiled with them elsewhere could be the copy that the linker keeps).
function(picolm_isa file)
    if(EXISTS ${CMAKE_SOURCE_DIR}/src/kernels/${file}.cpp)
        set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/${file}.cpp
            PROPERTIES COMPILE_OPTIONS "${ARGN}")
    endif()
endfunction()
# A level of another architecture: the file is not compiled.
function(picolm_isa_left_out file)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/${file}.cpp
        PROPERTIES HEADER_FILE_ONLY ON)
endfunction()

picolm_isa(generic -O3)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    picolm_isa(sse2 -O3)
    picolm_isa(sse2_operators -O3)
    picolm_isa(avx2 -O3 -mavx2 -mf16c)
    picolm_isa(avx2_large -O3 -mavx2 -mf16c)
    picolm_isa(avx2_operators -O3 -mavx2 -mf16c)
    set(avx512 -mavx2 -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni)
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
        # gcc 12 takes the undefined vectors in its own headers for mistakes.
        list(APPEND avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
    endif()
    picolm_isa(avx512 -O3 ${avx512})
    picolm_isa(avx512_operators -O3 ${avx512})
    picolm_isa(amx -O3 ${avx512} -mamx-tile -mamx-int8)
else()
    picolm_isa_left_out(sse2)
    picolm_isa_left_out(sse2_operators)
    picolm_isa_left_out(avx2)
    picolm_isa_left_out(avx2_large)
    picolm_isa_left_out(avx2_operators)
    picolm_isa_left_out(avx512)
    picolm_isa_left_out(avx512_operators)
    picolm_isa_left_out(amx)
endif()

# Cortex-A53 and A55 execute in order: there the order of instructions counts. Scheduled before the
# registers are allocated, the unrolled loops would need more of them than there are.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
    set(picolm_late_scheduling $<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns>)
    picolm_isa(neon -O3 -march=armv8-a -mtune=cortex-a53 ${picolm_late_scheduling})
    picolm_isa(neon_operators -O3 -march=armv8-a -mtune=cortex-a53)
    picolm_isa(dotprod -O3 -march=armv8.2-a+dotprod -mtune=cortex-a55 ${picolm_late_scheduling})
    picolm_isa(i8mm -O3 -march=armv8.2-a+dotprod+i8mm ${picolm_late_scheduling})
else()
    picolm_isa_left_out(neon)
    picolm_isa_left_out(neon_operators)
    picolm_isa_left_out(dotprod)
    picolm_isa_left_out(i8mm)
endif()
