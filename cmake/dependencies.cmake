# Header-only dependencies, looked for before anything is compiled.
#
# They are the same on every architecture, but a cross compiler must not look into /usr/include,
# whose C library is the host's: the few headers are linked into a folder of the build, which is
# all that it sees of the host.
set(PICOLM_HOST_INCLUDE /usr/include CACHE PATH "where a cross build finds CLI11 and the others")

# picolm_need(PACKAGE HEADER...): the Debian package is named in the error.
function(picolm_need package)
    list(GET ARGN 0 first)
    if(CMAKE_CROSSCOMPILING)
        if(NOT EXISTS ${PICOLM_HOST_INCLUDE}/${first})
            message(FATAL_ERROR "${PICOLM_HOST_INCLUDE}/${first} is missing (Debian: ${package}); "
                "run ./install.sh --deps cross, or set PICOLM_HOST_INCLUDE")
        endif()
        set(folder ${CMAKE_BINARY_DIR}/host_headers)
        file(MAKE_DIRECTORY ${folder})
        foreach(header IN LISTS ARGN)
            string(REGEX REPLACE "/.*" "" entry ${header})
            file(CREATE_LINK ${PICOLM_HOST_INCLUDE}/${entry} ${folder}/${entry} SYMBOLIC)
        endforeach()
        target_include_directories(picolm_options SYSTEM INTERFACE ${folder})
        return()
    endif()
    string(MAKE_C_IDENTIFIER "PICOLM_FOLDER_OF_${first}" folder)
    find_path(${folder} ${first})
    mark_as_advanced(${folder})
    if(NOT ${folder})
        message(FATAL_ERROR "${first} is missing (Debian: ${package}); run ./install.sh")
    endif()
    # The compiler looks into /usr/include by itself, in an order that its own headers rely on.
    if(NOT ${folder} STREQUAL "/usr/include")
        target_include_directories(picolm_options SYSTEM INTERFACE ${${folder}})
    endif()
endfunction()

picolm_need(libcli11-dev CLI/CLI.hpp)
picolm_need(libxxhash-dev xxhash.h xxh3.h)
picolm_need(nlohmann-json3-dev nlohmann/json.hpp)

# hiredis is optional: without it redis:// is refused with a clear message. A static program goes
# without it, for it could look up names only with the libraries of the system it was built on; that
# is every cross build as well.
if(NOT PICOLM_STATIC)
    find_library(PICOLM_HIREDIS_LIBRARY hiredis)
    find_path(PICOLM_HIREDIS_FOLDER hiredis/hiredis.h)
    mark_as_advanced(PICOLM_HIREDIS_LIBRARY PICOLM_HIREDIS_FOLDER)
endif()

function(picolm_use_hiredis target)
    if(NOT PICOLM_HIREDIS_LIBRARY OR NOT PICOLM_HIREDIS_FOLDER)
        message(STATUS "Built without redis:// (static, or Debian's libhiredis-dev is missing)")
        return()
    endif()
    target_compile_definitions(${target} PRIVATE PICOLM_HIREDIS)
    target_link_libraries(${target} PRIVATE ${PICOLM_HIREDIS_LIBRARY})
    if(NOT PICOLM_HIREDIS_FOLDER STREQUAL "/usr/include")
        target_include_directories(${target} SYSTEM PRIVATE ${PICOLM_HIREDIS_FOLDER})
    endif()
endfunction()
