/* Finds libibverbs in the ways in which programs find it, and prints the name of the first device.
 *
 *   linked            by the dynamic linker
 *   opened            by its name, with versions and without
 *   versioned         as a versioned symbol of the whole program
 *   module FLAGS FILE in a module that is linked with it, opened with RTLD_LOCAL and the flags
 *
 * With -DMODULE it is the module, and with -DPROGRAM it is linked with libibverbs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef MODULE
#include <infiniband/efadv.h>
#include <infiniband/mlx5dv.h>
#endif

typedef struct ibv_device **get_list(int *);
typedef void free_list(struct ibv_device **);
typedef const char *get_name(struct ibv_device *);

static int show(get_list *get, free_list *free, get_name *name)
{
	int count;
	if (!get || !free || !name)
		return 2;
	struct ibv_device **list = get(&count);
	if (!list || count != 1)
		return 3;
	puts(name(list[0]));
#ifdef MODULE
	/* The providers' libraries are linked BIND_NOW with private symbols of libibverbs. */
	struct ibv_context *context = ibv_open_device(list[0]);
	struct efadv_device_attr attr;
	if (mlx5dv_is_supported(list[0]) || !context || !efadv_query_device(context, &attr, sizeof attr))
		return 4;
	ibv_close_device(context);
#endif
	free(list);
	return 0;
}

#if defined(PROGRAM) || defined(MODULE)
int linked(void)
{
	return show(ibv_get_device_list, ibv_free_device_list, ibv_get_device_name);
}
#endif

#ifndef MODULE
static void *found(void *handle, const char *name, const char *version)
{
	return version ? dlvsym(handle, name, version) : dlsym(handle, name);
}

static int show_found(void *handle, const char *version)
{
	return show((get_list *)found(handle, "ibv_get_device_list", version),
		    (free_list *)found(handle, "ibv_free_device_list", version),
		    (get_name *)found(handle, "ibv_get_device_name", version));
}

static int opened(void)
{
	void *handle = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	int unversioned = handle ? show_found(handle, NULL) : 5;
	return unversioned ? unversioned : show_found(handle, "IBVERBS_1.1");
}

static int module(const char *flags, const char *file)
{
	int deep = strcmp(flags, "deepbind") ? 0 : RTLD_DEEPBIND;
	void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | deep);
	int (*run)(void) = handle ? (int (*)(void))dlsym(handle, "linked") : NULL;
	if (!run)
		fprintf(stderr, "%s\n", dlerror());
	return run ? run() : 6;
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "";
#ifdef PROGRAM
	if (!strcmp(way, "linked"))
		return linked();
#endif
	if (!strcmp(way, "opened"))
		return opened();
	if (!strcmp(way, "versioned"))
		return show_found(RTLD_DEFAULT, "IBVERBS_1.1");
	if (!strcmp(way, "module") && argc == 4)
		return module(argv[2], argv[3]);
	return 1;
}
#endif
