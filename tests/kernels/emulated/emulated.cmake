# AVX-VNNI, AVX-512 and AMX on a CPU without them: their files compiled once more with functions in
# place of the instructions, SIMDe's for AVX-512. Without SIMDe those levels are only tested where the CPU has them.
# Not in sanitised builds: SIMDe's integers wrap where they are signed.
find_path(PICOLM_SIMDE_INCLUDE simde/x86/avx512.h)
set(simde_version 0)
if(PICOLM_SIMDE_INCLUDE)
    file(STRINGS ${PICOLM_SIMDE_INCLUDE}/simde/simde-common.h simde_version
        REGEX "define SIMDE_VERSION_(MAJOR|MINOR|MICRO) ")
    string(REGEX REPLACE "[^0-9;]" "" simde_version "${simde_version}")
    list(JOIN simde_version . simde_version)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$"
        AND simde_version VERSION_GREATER_EQUAL 0.7.4
        AND NOT PICOLM_SANITIZE)
    add_library(emulated_levels OBJECT
        kernels/emulated/emulated.cpp
        kernels/emulated/avx512.cpp
        kernels/emulated/avx512_operators.cpp
        kernels/emulated/amx.cpp)
    target_include_directories(emulated_levels PRIVATE
        ${CMAKE_CURRENT_SOURCE_DIR}/kernels/emulated ${CMAKE_CURRENT_SOURCE_DIR})
    target_include_directories(emulated_levels SYSTEM PRIVATE ${PICOLM_SIMDE_INCLUDE})
    # Vectors wider than the CPU's are passed in memory, inside this library alone.
    target_compile_options(emulated_levels PRIVATE
        -O1 -Wno-psabi -Wno-ignored-attributes)
    target_link_libraries(emulated_levels PRIVATE picolm_kernels)
    # Apart, for its other instructions are the CPU's.
    add_library(emulated_avxvnni OBJECT kernels/emulated/avxvnni.cpp)
    target_compile_options(emulated_avxvnni PRIVATE -mavx2 -mf16c -O1)
    target_link_libraries(emulated_avxvnni PRIVATE picolm_kernels)
    target_link_libraries(test_kernels PRIVATE emulated_levels emulated_avxvnni)
    target_compile_definitions(test_kernels PRIVATE PICOLM_EMULATED_LEVELS)
else()
    message(STATUS "tests: the levels avxvnni, avx512 and amx are not emulated (x86-64 and SIMDe 0.7.4, "
        "libsimde-dev, are needed; found: ${simde_version})")
endif()
