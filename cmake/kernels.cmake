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
    picolm_isa(avx2_operators -O3 -mavx2 -mf16c)
else()
    picolm_isa_left_out(sse2)
    picolm_isa_left_out(sse2_operators)
    picolm_isa_left_out(avx2)
    picolm_isa_left_out(avx2_operators)
endif()
