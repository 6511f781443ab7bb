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

# hiredis is optional: without it redis:// is refused with a clear message. A cross build takes the
# one of its architecture, if there is one; a static build needs the archive.
if(CMAKE_CROSSCOMPILING)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -dumpmachine OUTPUT_VARIABLE triple
        OUTPUT_STRIP_TRAILING_WHITESPACE)
    find_library(PICOLM_HIREDIS_LIBRARY libhiredis.a PATHS /usr/lib/${triple} NO_DEFAULT_PATH)
    find_path(PICOLM_HIREDIS_FOLDER hiredis/hiredis.h PATHS ${PICOLM_HOST_INCLUDE} NO_DEFAULT_PATH)
else()
    if(PICOLM_STATIC)
        find_library(PICOLM_HIREDIS_LIBRARY libhiredis.a)
    else()
        find_library(PICOLM_HIREDIS_LIBRARY hiredis)
    endif()
    find_path(PICOLM_HIREDIS_FOLDER hiredis/hiredis.h)
endif()
mark_as_advanced(PICOLM_HIREDIS_LIBRARY PICOLM_HIREDIS_FOLDER)

function(picolm_use_hiredis target)
    if(NOT PICOLM_HIREDIS_LIBRARY OR NOT PICOLM_HIREDIS_FOLDER)
        message(STATUS "hiredis is missing (Debian: libhiredis-dev): built without redis://")
        return()
    endif()
    target_compile_definitions(${target} PRIVATE PICOLM_HIREDIS)
    target_link_libraries(${target} PRIVATE ${PICOLM_HIREDIS_LIBRARY})
    if(CMAKE_CROSSCOMPILING)
        file(CREATE_LINK ${PICOLM_HIREDIS_FOLDER}/hiredis
            ${CMAKE_BINARY_DIR}/host_headers/hiredis SYMBOLIC)
    elseif(NOT PICOLM_HIREDIS_FOLDER STREQUAL "/usr/include")
        target_include_directories(${target} SYSTEM PRIVATE ${PICOLM_HIREDIS_FOLDER})
    endif()
endfunction()
